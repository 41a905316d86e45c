// A YAML document as a plain tree with a place for every node, under limits that hold while it is read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/diagnostic.hpp"

namespace attune {

/// One node of the document. A mapping keeps its entries in order, duplicates included.
struct YamlNode {
  enum class Kind { empty, scalar, list, mapping };

  Kind kind = Kind::empty;
  Location where;
  std::string text;                ///< of a scalar
  std::vector<YamlNode> children;  ///< of a list; of a mapping key, value, key, value, ...
};

/// What a spec calls this kind of node: "a list".
std::string_view kind_text(YamlNode::Kind kind);

/// Parses the one document of `text`. Aliases, anchors and tags are refused, so the tree is never larger than
/// the text; nesting beyond max_depth is refused before the parser recurses into it.
Result<YamlNode> parse_yaml(std::string_view text, const std::string& file, int max_depth);

}  // namespace attune
