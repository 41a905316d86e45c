// attune generate: spec -> sources and a manifest.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>

#include "generator/cost.hpp"
#include "generator/json_fields.hpp"
#include "generator/manifest.hpp"
#include "runtime/base/text.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/specs.hpp"

namespace attune::cli {
namespace {

struct GenerateOptions {
  std::vector<std::string> specs;
  std::string out;
  bool json = false;
};

Exit generate(const GenerateOptions& options) {
  const Collection request = load_specs(options.specs);
  const std::vector<Source> sources = emit_sources(request);
  fmt::print(options.json ? stderr : stdout, "{}", cost_report(request));

  const std::string manifest = manifest_json(request.wanted);
  const std::filesystem::path folder = options.out;
  std::size_t bytes = 0;
  for (const Source& source : sources) {
    write_output(folder / (source.name + ".cu"), source.text);
    bytes += source.text.size();
  }
  write_output(folder / "manifest.json", manifest);

  if (options.json) {
    const Cost cost = estimate(variants_of(request));
    print_json({{"out", options.out},
                {"variants", sources.size()},
                {"refused", refusals_json(request)},
                {"estimated_seconds", cost.seconds},
                {"estimated_bytes", cost.bytes},
                {"kernels", parse_json(manifest)["kernels"]}});
  } else {
    fmt::print("wrote {} ({}) and manifest.json to {}\n", counted(static_cast<long long>(sources.size()), "source"),
               bytes_text(static_cast<double>(bytes)), options.out);
  }
  return Exit::done;
}

}  // namespace

Command generate_command(CLI::App& root) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* app = root.add_subcommand("generate", "Emit the CUDA sources of a spec, and a manifest");
  add_spec_argument(*app, options->specs);
  app->add_option("--out", options->out, "Folder for the sources and manifest.json; made if need be")
      ->required()
      ->option_text("DIR REQUIRED");
  app->add_flag("--json", options->json, "Print the manifest and the estimate as JSON");
  app->footer(R"(Says what the spec will cost before it writes anything; writes nothing if any spec is bad.
Example:
  attune generate specs/quickstart.yaml --out kernels)");
  return {.app = app, .run = [options] { return generate(*options); }};
}

}  // namespace attune::cli
