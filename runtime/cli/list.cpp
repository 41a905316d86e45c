// attune list: the kernels that are embedded in the library, or those of a bundle.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <memory>

#include "runtime/bundle/bundle.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/kernel_table.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

struct ListOptions {
  std::string bundle;
  bool json = false;
};

Exit list(const ListOptions& options) {
  const auto bundle = options.bundle.empty() ? nullptr : LoadedBundle::from_file(options.bundle);
  const std::span<const ReadyKernel> kernels = bundle ? std::span(bundle->kernels()) : embedded_kernels();
  const std::span<const BundledTable> tables = bundle ? std::span(bundle->tables()) : embedded_tables();
  if (options.json) {
    print_json({{"kernels", kernels_json(kernels)}, {"tables", names_of(tables)}});
  } else if (kernels.empty() && !bundle) {
    fmt::print(
        "No kernels are embedded: this attune was built without them. Kernels are compiled by NVRTC when first "
        "needed.\n");
  } else {
    fmt::print("{}", kernel_table(kernels, tables));
  }
  return Exit::done;
}

}  // namespace

Command list_command(CLI::App& root) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* app = root.add_subcommand("list", "The kernels embedded in the library, or those of a bundle");
  app->add_option("--bundle", options->bundle, "A file that attune pack made")->option_text("FILE");
  app->add_flag("--json", options->json, "Print the list as JSON");
  app->footer(R"(A problem that none of them serves is generated and compiled by NVRTC when first met (attune explain).
Examples:
  attune list
  attune list --bundle kernels.attune)");
  return {.app = app, .run = [options] { return list(*options); }};
}

}  // namespace attune::cli
