// attune compile: spec -> cubins, with a resource table.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <memory>

#include "runtime/cli/build.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/number_options.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/cli/progress.hpp"
#include "runtime/cli/specs.hpp"

namespace attune::cli {
namespace {

struct CompileOptions {
  std::vector<std::string> specs;
  std::vector<std::string> archs;
  std::string out;
  bool listings = false;
  int jobs = 0;
  bool json = false;
};

/// The source, its PTX and, where there is a disassembler, its SASS, beside the cubin.
void write_listings(const std::filesystem::path& folder, const Built& one, const Compiler& compiler,
                    const Disassembler* disassembler) {
  const Source& source = *one.source;
  const std::filesystem::path beside = folder / fmt::format("{}.{}", source.name, one.arch.name);
  write_output(folder / (source.name + ".cu"), source.text);
  write_output(beside.string() + ".ptx", compiler.ptx(source, one.arch.capability));
  if (disassembler != nullptr) write_output(beside.string() + ".sass", disassembler->text(one.compiled.image));
}

Exit compile(const CompileOptions& options) {
  const Collection request = load_specs(options.specs);
  const std::vector<Source> sources = emit_sources(request);
  if (!options.json) fmt::print("{}", cost_report(request));

  const Found<Compiler> compiler = find_compiler();
  if (!compiler) throw Failure(Exit::machine_lacks, compiler.problem);
  const std::vector<Arch> archs = resolve_archs(options.archs);
  std::vector<Built> built = [&] {
    Progress progress(stderr, "kernels compiled", kernels_to_build(sources, archs));
    return build(*compiler, sources, archs, options.jobs, [&](const Built&) { progress.add(); });
  }();
  if (built.empty()) throw Failure(Exit::bad_usage, "no variant fits the architectures asked for");
  const Found<Disassembler> disassembler = find_disassembler();
  if (disassembler) disassemble(*disassembler, built, options.jobs);
  if (!options.out.empty()) {
    for (const Built& one : built) {
      if (!one.ok()) continue;
      const std::string file = fmt::format("{}.{}.cubin", one.source->name, one.arch.name);
      write_output(std::filesystem::path(options.out) / file, one.compiled.image);
      if (options.listings) write_listings(options.out, one, *compiler.value, disassembler.value.get());
    }
  }
  if (options.json) {
    nlohmann::ordered_json json{{"nvrtc", compiler->version()}, {"kernels", resource_json(built)}};
    if (!disassembler) json["not_counted"] = "instructions: " + disassembler.problem;
    print_json(json);
  } else {
    fmt::print("\nNVRTC {}\n{}", compiler->version(), resource_table(built));
    if (!disassembler) {
      fmt::print("instructions were not counted{}: {}\n", options.listings ? ", nor SASS listed" : "",
                 disassembler.problem);
    }
    if (!options.out.empty()) fmt::print("cubins are in {}\n", options.out);
  }
  return report_failures(built) ? Exit::done : Exit::check_failed;
}

}  // namespace

Command compile_command(CLI::App& root) {
  auto options = std::make_shared<CompileOptions>();
  CLI::App* app = root.add_subcommand("compile", "Compile a spec with NVRTC and print what each kernel uses");
  add_spec_argument(*app, options->specs);
  add_arch_option(*app, options->archs, "Architectures [default: this machine's GPU, else sm_80 and sm_90]");
  app->add_option("--out", options->out, "Folder for <variant>.<arch>.cubin; made if need be")->option_text("DIR");
  app->add_flag("--listings", options->listings, "Also <variant>.cu, <variant>.<arch>.ptx and .sass")->needs("--out");
  app->add_option("--jobs", options->jobs, "Compilations at a time [default: one for each core]")
      ->check(positive_number())
      ->option_text("N");
  app->add_flag("--json", options->json, "Print the table as JSON");
  app->footer(
      R"(Needs libnvrtc (part of the CUDA toolkit), no GPU and no nvcc. Where nvdisasm or cuobjdump is, the table counts
the tensor-core instructions of each kernel (HGMMA, HMMA) and those that use local memory (LDL, STL).
Examples:
  attune compile specs/quickstart.yaml
  attune compile specs/*.yaml --arch sm_86 --arch sm_120 --out cubins)");
  return {.app = app, .run = [options] { return compile(*options); }};
}

}  // namespace attune::cli
