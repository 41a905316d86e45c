#include "runtime/choice/explanation_json.hpp"

#include <nlohmann/json.hpp>

namespace attune {
namespace {

using Json = nlohmann::ordered_json;

Json grid_json(const Launch& launch) { return {launch.grid.x, launch.grid.y, launch.grid.z}; }

/// Whether a row of a tuned table decides. If so, which row, its distance and its measurement; else the reason.
Json tuned_json(const TunedVerdict& tuned) {
  Json json{{"used", tuned.reason.empty() && tuned.row.has_value()}};
  if (!tuned.reason.empty()) json["reason"] = tuned.reason;
  if (!tuned.row) return json;
  const TunedResult& result = tuned.row->result;
  json["problem"] = text_of(tuned.row->problem);
  json["distance"] = tuned.distance;
  json["variant"] = result.variant.name();
  json["microseconds"] = result.microseconds;
  json["default_microseconds"] = result.default_microseconds;
  json["confidence"] = result.confidence;
  json["gpu"] = tuned.gpu;
  json["date"] = result.date;
  return json;
}

Json considered_json(const std::vector<Considered>& considered) {
  Json rows = Json::array();
  for (const Considered& one : considered)
    rows.push_back({{"variant", one.variant.name()}, {"refusals", one.refusals}});
  return rows;
}

void add_launches(Json& json, const Explanation& explanation) {
  json["grid"] = grid_json(*explanation.launch);
  json["threads"] = explanation.launch->threads;
  json["shared_bytes"] = explanation.launch->shared_bytes;
  for (const auto& [key, count] : explanation.counts) json[key] = count;
  json["workspace_bytes"] = explanation.workspace_bytes;
  for (const OtherLaunch& other : explanation.others) {
    const std::string role(other.role);
    json[role] = other.serving.variant.name();
    json[role + "_grid"] = grid_json(other.launch);
  }
  for (const Explanation& part : explanation.short_sequences) json["short_sequences"] = explanation_json(part);
}

}  // namespace

Json explanation_json(const Explanation& explanation) {
  Json json{{"problem", explanation.problem},
            {"device", explanation.device.name},
            {"served", explanation.served()},
            {"variant", explanation.serving.variant.name()},
            {"source", origin_text(explanation.serving.origin)}};
  if (explanation.served()) {
    add_launches(json, explanation);
  } else {
    json["refusals"] = explanation.refusals;
  }
  json["tuned"] = tuned_json(explanation.serving.tuned);
  for (const auto& [role, kernel] : explanation.frozen()) {
    json["frozen"][role] = kernel ? Json(kernel->name()) : Json();
  }
  json["passed_over"] = considered_json(explanation.own.passed_over);
  json["considered"] = considered_json(explanation.considered);
  return json;
}

}  // namespace attune
