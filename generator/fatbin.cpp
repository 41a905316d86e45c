#include "generator/fatbin.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <set>
#include <stdexcept>

#include "generator/check.hpp"
#include "generator/files.hpp"
#include "generator/hash.hpp"
#include "generator/parallel.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

/// The GPUs whose machine code every kernel for any GPU carries.
constexpr std::array<int, 2> common_capabilities{80, 90};

constexpr std::size_t hash_digits = 32;

std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

struct Output {
  std::string text;  ///< stdout and stderr
  bool ok = false;
};

Output run(const std::string& command) {
  std::FILE* const pipe = popen((command + " 2>&1").c_str(), "re");  // NOLINT(cert-env33-c): its words are quoted
  if (pipe == nullptr) throw std::runtime_error("cannot start a shell for nvcc");
  Output output;
  std::array<char, 1 << 12> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) output.text.append(part.data(), size);
  const int status = pclose(pipe);
  output.ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  return output;
}

/// Tells builds of nvcc apart.
std::string version_of(const fs::path& nvcc) {
  const Output output = run(shell_word(nvcc.string()) + " --version");
  if (!output.ok) throw std::runtime_error(fmt::format("{} --version fails: {}", nvcc.string(), output.text));
  return output.text;
}

std::string options_of(const Variant& variant) {
  return fmt::format("{} --compress-mode=size -Werror all-warnings {}", fmt::join(compile_flags(), " "),
                     gencode_options(variant));
}

/// NAME.<hash>.fatbin.
std::string fatbin_file(const Source& source, const std::string& version) {
  const std::string options = options_of(source.variant);
  return fmt::format("{}.{}.fatbin", source.name,
                     xxh3_hex(fmt::format("{}\n{}{}\n{}", version, options, source.text.size(), source.text)));
}

bool is_fatbin_file(const fs::path& path) {
  const std::string hash = path.stem().extension().string();
  return path.extension() == ".fatbin" && hash.size() == hash_digits + 1 &&
         hash.find_first_not_of("0123456789abcdef", 1) == std::string::npos;
}

void remove_others(const fs::path& folder, const std::vector<std::string>& files) {
  const std::set<std::string> kept(files.begin(), files.end());
  std::vector<fs::path> others;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_fatbin_file(entry.path()) && !kept.contains(entry.path().filename().string()))
      others.push_back(entry.path());
  }
  for (const fs::path& path : others) fs::remove(path);
}

}  // namespace

std::string gencode_options(const Variant& variant) {
  const Family& family = family_of(variant);
  const auto machine_code = [&](int capability) {
    return fmt::format(" -gencode arch=compute_{0},code=sm_{0}", family.target(capability));
  };
  const std::vector<Arch> targets = target_archs(variant);
  std::string options;
  if (variant.arch != 0 || family.architecture_specific) {
    for (const Arch& arch : targets) options += machine_code(arch.capability);
  } else {
    for (const int capability : common_capabilities) {
      if (std::ranges::find(targets, capability, &Arch::capability) != targets.end())
        options += machine_code(capability);
    }
    options += fmt::format(" -gencode arch=compute_{0},code=compute_{0}", minimum_capability(variant));
  }
  return options.substr(1);
}

Result<Fatbins> build_fatbins(std::span<const Source> sources, const FatbinBuild& how) {
  write_sources(how.folder, sources);
  const std::string version = version_of(how.nvcc);
  std::vector<std::string> files;
  std::vector<std::size_t> missing;
  for (const Source& source : sources) {
    files.push_back(fatbin_file(source, version));
    if (!fs::exists(how.folder / files.back())) missing.push_back(files.size() - 1);
  }

  Result<Fatbins> result;
  std::mutex mutex;
  // From a folder of its own, so that no path of this machine gets into the image.
  const std::string start =
      fmt::format("cd {} && {}", shell_word(how.folder.string()), shell_word(fs::absolute(how.nvcc).string()));
  parallel_for(static_cast<long long>(missing.size()), how.jobs, [&](long long i) {
    const std::size_t index = missing[static_cast<std::size_t>(i)];
    const Source& source = sources[index];
    const std::string unfinished = source.name + ".fatbin.tmp";
    const auto begin = std::chrono::steady_clock::now();
    const Output output = run(fmt::format("{} {} --fatbin -o {} {}.cu", start, options_of(source.variant),
                                          shell_word(unfinished), shell_word(source.name)));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (output.ok) fs::rename(how.folder / unfinished, how.folder / files[index]);
    const std::lock_guard lock(mutex);
    if (!output.ok) {
      result.problems.push_back({{.file = (how.folder / (source.name + ".cu")).string()},
                                 fmt::format("{} cannot compile it:\n{}", how.nvcc.string(), output.text),
                                 {}});
      return;
    }
    ++result.value.compiled;
    how.say(fmt::format("[{}/{}] nvcc {}.cu, {:.1f} s", result.value.compiled, missing.size(), source.name, seconds));
  });
  if (!result.ok()) return result;
  remove_others(how.folder, files);
  for (const std::string& file : files) result.value.images.push_back(read_bytes(how.folder / file));
  return result;
}

}  // namespace attune
