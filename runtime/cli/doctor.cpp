// attune doctor: what this machine has, and what to do about the rest.
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "runtime/base/error.hpp"
#include "runtime/base/text.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/machine.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

/// One thing that Attune uses.
struct Finding {
  std::string what;
  bool ok = false;
  bool required = true;  ///< to run kernels; a build-time tool is not
  bool there = false;    ///< though it cannot be used
  std::string detail{};
  std::string remedy{};  ///< what to do when it is missing
};

std::vector<Finding> find_driver_and_gpu() {
  Finding driver{.what = "driver", .remedy = "install an NVIDIA driver for CUDA 12.0 or newer (525.60 or newer)"};
  Finding gpu{.what = "GPU", .remedy = "an NVIDIA GPU of compute capability 8.0 (Ampere) or newer runs the kernels"};
  try {
    const Driver opened;
    driver.ok = true;
    driver.detail = fmt::format("supports CUDA {}", opened.version());
    for (int i = 0; i < opened.device_count(); ++i) {
      const Device device = opened.device(i);
      gpu.ok = gpu.ok || device.capability >= 80;
      gpu.detail += fmt::format("{}{} ({}.{}, {} multiprocessors, {} shared memory a block)", i > 0 ? ", " : "",
                                device.name, device.capability / 10, device.capability % 10, device.multiprocessors,
                                bytes_text(device.shared_per_block));
    }
    if (gpu.detail.empty()) gpu.detail = "the driver reports none";
  } catch (const Error& error) {
    driver.detail = error.what();
    gpu.detail = "cannot be seen without the driver";
  }
  return {gpu, driver};
}

Finding find_nvrtc() {
  Finding finding{
      .what = "NVRTC",
      .remedy =
          "install the CUDA toolkit, or nvidia-cuda-nvrtc by pip into the Python environment that is active; it "
          "compiles kernels that are not ready"};
  const Found<Compiler> compiler = find_compiler();
  finding.ok = static_cast<bool>(compiler);
  finding.detail = compiler ? fmt::format("{} at {}", compiler->version(), compiler->path()) : compiler.problem;
  return finding;
}

Finding find_host() {
  Finding finding{.what = "host compiler",
                  .required = false,
                  .remedy = "install g++ or clang++, or set CXX; the emulator needs one to run kernels without a GPU"};
  const Found<emulator::HostCompiler> compiler = find_host_compiler();
  finding.ok = static_cast<bool>(compiler);
  finding.detail = compiler ? fmt::format("{} at {}", compiler->version(), compiler->path()) : compiler.problem;
  if (compiler.problem.find("TMPDIR") != std::string::npos) {
    finding.there = true;
    finding.remedy = "set TMPDIR to a folder that can be written, or unset it";
  }
  return finding;
}

/// Looks where the build does.
Finding find_nvcc() {
  const std::optional<std::filesystem::path> nvcc = find_cuda_tool("nvcc");
  return {.what = "nvcc",
          .ok = nvcc.has_value(),
          .required = false,
          .detail = nvcc ? nvcc->string() : fmt::format("not in {}", cuda_tool_places),
          .remedy =
              "install the CUDA toolkit (13.0 or newer) and build again; it compiles the kernels that are embedded in "
              "the library"};
}

Finding find_cache() {
  Finding finding{.what = "cache folder",
                  .remedy =
                      "set ATTUNE_CACHE_DIR to a folder that can be written; without one every process compiles "
                      "again"};
  const std::filesystem::path root = default_cache_root();
  if (root.empty()) {
    finding.detail = "neither ATTUNE_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
    return finding;
  }
  const Cache cache(root, {});
  if (const std::string refusal = cache.refusal(); !refusal.empty()) {
    finding.there = true;
    finding.detail = refusal;
    finding.remedy = "make it safe (chmod go-w, chown), or set ATTUNE_CACHE_DIR to a folder that is yours alone";
    return finding;
  }
  // Nothing is made just to look: the nearest folder that exists decides.
  std::filesystem::path existing = root;
  std::error_code ignored;
  while (!existing.empty() && !std::filesystem::exists(existing, ignored) && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  const bool writable =
      std::filesystem::is_directory(existing, ignored) && ::access(existing.c_str(), W_OK | X_OK) == 0;
  const std::size_t kernels = cache.list().size();
  finding.ok = writable || kernels > 0;
  finding.detail = fmt::format("{}, {}{}", root.string(), counted(static_cast<long long>(kernels), "kernel"),
                               writable ? "" : "; it cannot be written");
  return finding;
}

Finding find_embedded() {
  const std::size_t count = embedded_kernels().size();
  return {
      .what = "embedded kernels",
      .ok = count > 0,
      .required = false,
      .detail = count > 0 ? std::to_string(count) : "none: this attune was built without them",
      .remedy =
          "build with a CUDA toolkit and -DATTUNE_EMBED=ON, or `attune pack`; NVRTC compiles the others at first use"};
}

/// A run, with what is to follow it, where the working folder has a spec: what is installed brings none.
std::string first_command(std::string_view rest) {
  constexpr std::string_view spec = "specs/quickstart.yaml";
  std::error_code unreadable;
  if (std::filesystem::exists(spec, unreadable)) return fmt::format("attune run {}{}", spec, rest);
  return "attune explain --head-dim 128 --seqlen-q 4096 --causal";
}

/// The one thing to do now on this machine.
std::string next_step(const std::vector<Finding>& findings) {
  const auto ok = [&](std::string_view what) {
    return std::ranges::any_of(findings, [&](const Finding& f) { return f.what == what && f.ok; });
  };
  const auto remedy = [&](std::string_view what) { return std::ranges::find(findings, what, &Finding::what)->remedy; };
  if (ok("GPU") && (ok("NVRTC") || ok("embedded kernels"))) {
    return ok("cache folder") ? first_command("") : remedy("cache folder");
  }
  if (ok("GPU")) return remedy("NVRTC");
  if (ok("host compiler")) return first_command(" --device emulator, which needs no GPU");
  return remedy("host compiler");
}

Exit doctor(bool json) {
  std::vector<Finding> findings = find_driver_and_gpu();
  for (Finding (*look)() : {find_nvrtc, find_nvcc, find_host, find_cache, find_embedded}) findings.push_back(look());
  const bool complete = std::ranges::all_of(findings, [](const Finding& f) { return f.ok || !f.required; });
  if (json) {
    auto rows = nlohmann::ordered_json::array();
    for (const Finding& f : findings) {
      rows.push_back({{"what", f.what},
                      {"ok", f.ok},
                      {"required", f.required},
                      {"detail", f.detail},
                      {"remedy", f.ok ? "" : f.remedy}});
    }
    print_json({{"complete", complete}, {"findings", rows}, {"next", next_step(findings)}});
  } else {
    for (const Finding& f : findings) {
      fmt::print("{:<17} {:<8} {}\n", f.what, f.ok ? "OK" : f.there ? "unusable" : "missing", f.detail);
      if (!f.ok) fmt::print("{:<17} {:<8} -> {}\n", "", "", f.remedy);
    }
    fmt::print("next: {}\n", next_step(findings));
  }
  return complete ? Exit::done : Exit::machine_lacks;
}

}  // namespace

Command doctor_command(CLI::App& root) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app = root.add_subcommand("doctor", "GPU, driver, compilers and cache folder: what is here, what to do");
  app->add_flag("--json", *json, "Print the findings as JSON");
  app->footer("Exit code 3 when something that running kernels needs is missing.");
  return {.app = app, .run = [json] { return doctor(*json); }};
}

}  // namespace attune::cli
