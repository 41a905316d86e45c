// The JSON Schema of a spec, for editors.
#pragma once

#include <string>

namespace attune {

/// specs/attune.schema.json (draft-07), made from the field table and the family table.
std::string json_schema();

}  // namespace attune
