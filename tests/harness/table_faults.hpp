// What a check of a cache's tables has to find.
#pragma once

#include <string>

#include "templates/check_params.h"

namespace attune::testing {

/// The first fault in tables in host memory, entry by entry as the parameters read.
AttuneTableFault first_fault(const AttuneCheckParams& params);

/// How its message begins; "" where there is none.
std::string fault_text(const AttuneCheckParams& params, const AttuneTableFault& fault);

}  // namespace attune::testing
