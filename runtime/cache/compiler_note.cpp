#include "runtime/cache/compiler_note.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "generator/hash.hpp"
#include "generator/json_fields.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/base/files.hpp"
#include "runtime/cache/layout.hpp"
#include "runtime/compiler/nvrtc_abi.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_note_bytes = 1 << 14;
constexpr const char* note_file = ".nvrtc.json";

/// Changes whenever the file does; empty where there is none.
std::string state_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return fmt::format("{} bytes, {}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

/// All that says where a library is found: two processes for which it is equal open the same one, until files move.
std::string surroundings() {
  std::string text;
  for (const char* name : {"LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH"}) {
    text += fmt::format("{}={}\n", name, environment(name));
  }
  text += state_of("/etc/ld.so.cache") + "\n";
  // The run paths of the program, and of what calls dlopen.
  std::error_code ignored;
  text += fs::read_symlink("/proc/self/exe", ignored).string() + "\n";
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&surroundings), &self) != 0) text += self.dli_fname;
  return xxh3_hex(text);
}

bool is_open_already() {
  for (const char* soname : nvrtc::sonames) {
    void* library = ::dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
    if (library == nullptr) continue;
    ::dlclose(library);
    return true;
  }
  return false;
}

Json read_note(const Cache& cache) {
  if (cache.root().empty()) return {};
  const cache::OpenedFolder folder = cache::open_version(cache.root());
  if (!folder.fd.open()) return {};
  const FileDescriptor file = open_file(folder.fd, note_file);
  const auto text = read_file(file, max_note_bytes);
  if (!text || !other_writers(file).empty()) return {};
  return parse_json(*text);
}

}  // namespace

std::optional<std::string> noted_compiler(const Cache& cache) {
  if (is_open_already()) return std::nullopt;
  try {
    const Json note = read_note(cache);
    if (!note.is_object() || note.at("surroundings").get<std::string>() != surroundings()) return std::nullopt;
    const std::string state = state_of(note.at("path").get<std::string>());
    if (state.empty() || note.at("state").get<std::string>() != state) return std::nullopt;
    return note.at("identity").get<std::string>();
  } catch (const Json::exception&) {
    return std::nullopt;  // not what Attune wrote
  }
}

void note_compiler(const Cache& cache, const Compiler& compiler) {
  const Json note = {{"surroundings", surroundings()},
                     {"path", compiler.path()},
                     {"state", state_of(compiler.path())},
                     {"identity", compiler.identity()}};
  if (cache.root().empty() || !cache.refusal().empty() || read_note(cache) == note) return;
  try {
    const fs::path version = cache::version_folder(cache.root());
    make_private_folders(version);
    const auto lock = FileLock::acquire(version / ".nvrtc.lock", 0);
    if (!lock) return;
    std::error_code ignored;
    fs::remove(version / note_file, ignored);
    write_file(version / note_file, json_text(note, 2) + "\n");  // whoever reads half of it opens the library
  } catch (const fs::filesystem_error&) {
    // A folder that cannot be written costs the opening of the library.
  }
}

}  // namespace attune
