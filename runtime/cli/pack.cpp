// attune pack: spec -> a bundle of compiled kernels, for machines and programs without a compiler.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>

#include "generator/command_words.hpp"
#include "generator/fatbin.hpp"
#include "runtime/base/files.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/bundle.hpp"
#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/kernel_table.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/specs.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

struct PackOptions {
  std::vector<std::string> specs;
  std::vector<std::string> tuned;
  std::vector<std::string> archs;
  std::string compiler;
  std::string out;
  int jobs = 0;
  bool json = false;
};

/// Kernels and the compiler that made them.
struct Packed {
  std::string bundle;
  std::string compiler;
};

Packed pack_with_nvcc(const fs::path& nvcc, const std::vector<Source>& sources, const Collection& request,
                      const PackOptions& options) {
  const ScratchFolder folder;
  Progress progress(stderr, "kernels compiled", static_cast<long long>(sources.size()));
  const auto say = [&](const std::string& /*line*/) { progress.add(); };
  Result<Fatbins> fatbins =
      build_fatbins(sources, {.nvcc = nvcc, .folder = folder.path(), .jobs = options.jobs, .say = say});
  if (!fatbins.ok()) throw Failure(Exit::check_failed, std::move(fatbins.problems));
  Bundle bundle{.kernels = {}, .tables = request.tables};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    bundle.kernels.push_back(
        {sources[i].variant, sources[i].name, fatbins.value.images[i], request.wanted[i].tables_only});
  }
  return {.bundle = write_bundle(bundle), .compiler = nvcc.string()};
}

/// A cubin for each kernel and architecture.
Packed pack_with_nvrtc(const std::vector<Source>& sources, const Collection& request, const PackOptions& options) {
  const Found<Compiler> compiler = find_compiler();
  if (!compiler) throw Failure(Exit::machine_lacks, compiler.problem);
  const std::vector<Arch> archs = resolve_archs(options.archs);
  const std::vector<Built> built = [&] {
    Progress progress(stderr, "kernels compiled", kernels_to_build(sources, archs));
    return build(*compiler, sources, archs, options.jobs, [&](const Built&) { progress.add(); });
  }();
  if (std::vector<Diagnostic> problems = failures_of(built); !problems.empty()) {
    throw Failure(Exit::check_failed, std::move(problems));
  }
  Bundle bundle{.kernels = {}, .tables = request.tables};
  for (const Built& one : built) {
    const auto index = static_cast<std::size_t>(one.source - sources.data());
    BundledKernel kernel{one.source->variant, one.source->name, one.compiled.image, request.wanted[index].tables_only};
    kernel.variant.arch = set_of(one.arch);
    bundle.kernels.push_back(std::move(kernel));
  }
  return {.bundle = write_bundle(bundle), .compiler = "NVRTC " + compiler->version()};
}

Packed pack_sources(const std::vector<Source>& sources, const Collection& request, const PackOptions& options) {
  if (options.compiler == "nvrtc") return pack_with_nvrtc(sources, request, options);
  if (const std::optional<fs::path> nvcc = find_cuda_tool("nvcc")) {
    return pack_with_nvcc(*nvcc, sources, request, options);
  }
  if (options.compiler.empty()) return pack_with_nvrtc(sources, request, options);
  throw Failure(
      Exit::machine_lacks,
      fmt::format("nvcc is not in {}; install the CUDA toolkit, or pack with --compiler nvrtc", cuda_tool_places));
}

Exit pack(const PackOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Collection request = load_specs(options.specs, options.tuned);
  ArchSet archs = 0;
  for (const std::string& name : options.archs) archs |= set_of(*find_arch(name));
  for (const std::string& name : narrow(request.wanted, archs)) {
    fmt::print(stderr, "{}: left out, for none of {}\n", name, fmt::join(options.archs, ", "));
  }
  if (request.wanted.empty()) throw Failure(Exit::bad_usage, "no variant fits the architectures asked for");
  const std::vector<Source> sources = emit_sources(request);
  if (!options.json) fmt::print("{}", cost_report(request));

  const Packed packed = pack_sources(sources, request, options);
  const auto bundle = LoadedBundle::from_memory(packed.bundle, options.out);
  write_output(options.out, packed.bundle);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) {
    print_json({{"out", options.out},
                {"compiler", packed.compiler},
                {"seconds", seconds},
                {"bytes", packed.bundle.size()},
                {"tables", names_of(bundle->tables())},
                {"kernels", kernels_json(bundle->kernels())}});
  } else {
    fmt::print("\n{}wrote {} to {} in {}, compiled by {}\n", kernel_table(bundle->kernels(), bundle->tables()),
               bytes_text(static_cast<double>(packed.bundle.size())), options.out, seconds_text(seconds),
               packed.compiler);
  }
  return Exit::done;
}

}  // namespace

Command pack_command(CLI::App& root) {
  auto options = std::make_shared<PackOptions>();
  CLI::App* app = root.add_subcommand("pack", "Compile a spec into a bundle, for machines without a compiler");
  add_spec_argument(*app, options->specs);
  app->add_option("--tuned", options->tuned,
                  "A table of tuned problems to pack, with the variants that it names; any number of times")
      ->allow_extra_args(false)
      ->option_text("FILE");
  app->add_option("-o,--out", options->out, "The bundle: kernels.attune, say")
      ->required()
      ->option_text("FILE REQUIRED");
  add_arch_option(*app, options->archs,
                  "Architectures [default: nvcc: 8.0 and 9.0, and PTX for newer GPUs; NVRTC: this machine's GPU, else "
                  "sm_80 and sm_90]");
  app->add_option("--compiler", options->compiler, "nvcc or nvrtc [default: nvcc where it is, else nvrtc]")
      ->check(one_of({"nvcc", "nvrtc"}))
      ->option_text("NAME");
  app->add_option("--jobs", options->jobs, "Compilations at a time [default: one for each core]")
      ->check(positive_number())
      ->option_text("N");
  app->add_flag("--json", options->json, "Print what the bundle holds as JSON");
  app->footer(
      R"(A registry takes kernels from a bundle that attune_options.bundles or $ATTUNE_BUNDLES names. It serves the
version of Attune that made it.
Examples:
  attune pack specs/quickstart.yaml -o kernels.attune --arch sm_90
  attune pack model.yaml --tuned model_h200.yaml -o kernels.attune
  ATTUNE_BUNDLES=kernels.attune ./program
  attune list --bundle kernels.attune)");
  return {.app = app, .run = [options] { return pack(*options); }};
}

}  // namespace attune::cli
