#include "generator/yaml_tree.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace attune {
namespace {

/// Leaves the YAML parser at the first thing that a spec may not hold.
struct Refused : std::exception {
  explicit Refused(Diagnostic why) : problem(std::move(why)) {}
  Diagnostic problem;
};

/// Turns yaml-cpp's marks, which count from 0 and may lie beyond the end, into places inside the file.
class Places {
 public:
  Places(std::string_view text, std::string file) : file_(std::move(file)) {
    for (std::size_t start = 0; start <= text.size();) {
      const std::size_t end = std::min(text.find('\n', start), text.size());
      line_lengths_.push_back(static_cast<int>(end - start));
      start = end + 1;
    }
    // After a final newline there is no line to point at.
    if (line_lengths_.size() > 1 && line_lengths_.back() == 0) line_lengths_.pop_back();
  }

  [[nodiscard]] Location at(const YAML::Mark& mark) const {
    if (mark.is_null()) return {file_, 1, 1};
    const int lines = static_cast<int>(line_lengths_.size());
    if (mark.line >= lines) return {file_, lines, line_lengths_.back() + 1};
    const int line = std::max(mark.line, 0);
    return {file_, line + 1, std::clamp(mark.column, 0, line_lengths_[static_cast<std::size_t>(line)]) + 1};
  }

 private:
  std::string file_;
  std::vector<int> line_lengths_;
};

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Places& places, int max_depth) : places_(places), max_depth_(max_depth) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (std::exchange(started_, true)) {
      throw Refused({places_.at(mark), "a second YAML document begins here", "one spec per file"});
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    add(mark, YamlNode::Kind::empty);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override {
    throw Refused({places_.at(mark), "an alias (*name) stands here", "write the value out"});
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    add(mark, YamlNode::Kind::scalar).text = value;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, YamlNode::Kind::mapping);
  }
  void OnMapEnd() override { close(); }

  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] YamlNode take_root() { return std::move(root_); }

 private:
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) throw Refused({places_.at(mark), "an anchor (&name) stands here", "write the value out"});
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    // "?" and "!" are what the parser itself gives to plain and to quoted nodes.
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Refused({places_.at(mark), "a YAML tag (!name) stands here", "write the plain value"});
    }
  }

  YamlNode& add(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode* parent = open_.empty() ? nullptr : open_.back();
    Location where = places_.at(mark);
    // The mark of a value that is not there is that of whatever comes next; its key says more.
    const bool is_value =
        parent != nullptr && parent->kind == YamlNode::Kind::mapping && parent->children.size() % 2 == 1;
    if (kind == YamlNode::Kind::empty && is_value) where = parent->children.back().where;
    YamlNode& node = parent == nullptr ? root_ : parent->children.emplace_back();
    node.kind = kind;
    node.where = std::move(where);
    return node;
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlNode::Kind kind) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (static_cast<int>(open_.size()) >= max_depth_) {
      throw Refused({places_.at(mark), fmt::format("nesting is deeper than {} levels", max_depth_),
                     "a spec needs no more than a list in a mapping in a list"});
    }
    // A parent is complete but for its last child, so pointers into children stay valid while they are open.
    open_.push_back(&add(mark, kind));
  }

  void close() { open_.pop_back(); }

  const Places& places_;
  int max_depth_;
  bool started_ = false;
  YamlNode root_;
  std::vector<YamlNode*> open_;
};

/// The first byte that no text file holds, as a problem.
std::optional<Diagnostic> find_binary(std::string_view text, const std::string& file) {
  int line = 1;
  std::size_t line_start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\n') {
      ++line;
      line_start = i + 1;
    } else if ((byte < ' ' && byte != '\t' && byte != '\r') || byte == 0x7f) {
      return Diagnostic{{file, line, static_cast<int>(i - line_start) + 1},
                        fmt::format("byte 0x{:02x} does not belong into a text file", byte),
                        "a spec is UTF-8 text"};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view kind_text(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::empty:
      return "nothing";
    case YamlNode::Kind::scalar:
      return "a single value";
    case YamlNode::Kind::list:
      return "a list";
    case YamlNode::Kind::mapping:
      return "a mapping";
  }
  return "";
}

Result<YamlNode> parse_yaml(std::string_view text, const std::string& file, int max_depth) {
  Result<YamlNode> result;
  if (auto binary = find_binary(text, file)) {
    result.problems.push_back(std::move(*binary));
    return result;
  }
  const Places places(text, file);
  TreeBuilder builder(places, max_depth);
  try {
    std::istringstream stream{std::string{text}};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    if (builder.started()) {
      result.value = builder.take_root();
    } else {
      result.problems.push_back({{file, 1, 1}, "the file holds no YAML document", "begin with `template: <name>`"});
    }
  } catch (const Refused& refused) {
    result.problems.push_back(refused.problem);
  } catch (const YAML::Exception& error) {
    result.problems.push_back({places.at(error.mark), "this is not YAML: " + error.msg,
                               "keys and values as in `B_r: [64, 128]`; a value that has a colon stands in quotes"});
  }
  return result;
}

}  // namespace attune
