// attune features: what is served, on which GPUs, by kernels of which template.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>

#include "runtime/base/text.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/feature_table.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

struct FeaturesOptions {
  bool markdown = false;
  bool json = false;
};

Exit features(const FeaturesOptions& options) {
  const std::vector<FeatureRow> rows = feature_rows();
  if (options.json) {
    auto list = nlohmann::ordered_json::array();
    for (const FeatureRow& row : rows) {
      list.push_back({{"feature", row.feature},
                      {"sm_80", row.on_sm80},
                      {"sm_90", row.on_sm90},
                      {"emulator", row.in_emulator},
                      {"limits", row.limits}});
    }
    print_json({{"features", list}});
  } else if (options.markdown) {
    fmt::print("{}", feature_markdown(rows));
  } else {
    Table table({{"feature"}, {"8.0 and newer"}, {"9.0"}, {"emulator"}, {"limits"}});
    const auto cell = [](const std::string& server) { return server.empty() ? "-" : server; };
    for (const FeatureRow& row : rows)
      table.add({row.feature, cell(row.on_sm80), cell(row.on_sm90), cell(row.in_emulator), row.limits});
    fmt::print("{}", table.text());
  }
  return Exit::done;
}

}  // namespace

Command features_command(CLI::App& root) {
  auto options = std::make_shared<FeaturesOptions>();
  CLI::App* app = root.add_subcommand("features", "What is served where, and by the kernels of which template");
  app->add_flag("--markdown", options->markdown, "Print the table as Markdown, as README.md has it");
  app->add_flag("--json", options->json, "Print the table as JSON");
  app->footer("A kernel is chosen for each row as for a call; attune explain shows that for any problem.");
  return {.app = app, .run = [options] { return features(*options); }};
}

}  // namespace attune::cli
