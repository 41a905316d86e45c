#include "runtime/cli/explain_tuned.hpp"

namespace attune::cli {

nlohmann::ordered_json tuned_json(const TunedVerdict& tuned) {
  nlohmann::ordered_json json{{"used", tuned.reason.empty() && tuned.row.has_value()}};
  if (!tuned.reason.empty()) json["reason"] = tuned.reason;
  if (!tuned.row) return json;
  const TunedResult& result = tuned.row->result;
  json["problem"] = std::visit([](const auto& problem) { return problem.text(); }, tuned.row->problem);
  json["distance"] = tuned.distance;
  json["variant"] = result.variant.name();
  json["microseconds"] = result.microseconds;
  json["default_microseconds"] = result.default_microseconds;
  json["confidence"] = result.confidence;
  json["gpu"] = tuned.gpu;
  json["date"] = result.date;
  return json;
}

}  // namespace attune::cli
