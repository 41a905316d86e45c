#include "runtime/compiler/compile.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <system_error>

#include "runtime/base/cuda_places.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/base/error.hpp"
#include "runtime/compiler/nvrtc_abi.hpp"

namespace attune {
namespace {

/// Where libnvrtc may be, in the order to try: the loader's own paths first, then the usual toolkit folders.
std::vector<std::string> candidates() {
  std::vector<std::string> result(std::begin(nvrtc::sonames), std::end(nvrtc::sonames));
  for (const std::filesystem::path& root : cuda_roots()) {
    for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib"}) {
      for (const char* soname : nvrtc::sonames) result.push_back(root / folder / soname);
    }
  }
  return result;
}

/// NVRTC opens its built-in functions by name alone, and PyPI's wheel is in no folder that the loader knows: whoever
/// has opened them before, from where NVRTC is, spares it the search.
void open_builtins_beside(const std::filesystem::path& nvrtc) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(nvrtc.parent_path(), none)) {
    if (entry.path().filename().string().starts_with("libnvrtc-builtins.so.")) {
      dlopen(entry.path().c_str(), RTLD_LAZY | RTLD_LOCAL);
    }
  }
}

}  // namespace

struct Compiler::Library {
  nvrtc::Version* version = nullptr;
  nvrtc::GetErrorString* error_string = nullptr;
  nvrtc::CreateProgram* create = nullptr;
  nvrtc::DestroyProgram* destroy = nullptr;
  nvrtc::CompileProgram* compile = nullptr;
  nvrtc::GetSize* log_size = nullptr;
  nvrtc::GetText* log = nullptr;
  nvrtc::GetSize* cubin_size = nullptr;
  nvrtc::GetText* cubin = nullptr;
  nvrtc::GetSize* ptx_size = nullptr;
  nvrtc::GetText* ptx = nullptr;
  std::string path;
  int major = 0;
  std::string version_text;
  std::string identity;

  template <class Function>
  void require(void* library, Function*& slot, const char* name) const {
    slot = reinterpret_cast<Function*>(dlsym(library, name));
    if (slot == nullptr) {
      throw Error(ATTUNE_NOT_COMPILED, fmt::format("{} has no {}; Attune needs NVRTC of CUDA 12 or newer", path, name));
    }
  }

  void resolve(void* library) {
    require(library, version, "nvrtcVersion");
    require(library, error_string, "nvrtcGetErrorString");
    require(library, create, "nvrtcCreateProgram");
    require(library, destroy, "nvrtcDestroyProgram");
    require(library, compile, "nvrtcCompileProgram");
    require(library, log_size, "nvrtcGetProgramLogSize");
    require(library, log, "nvrtcGetProgramLog");
    require(library, cubin_size, "nvrtcGetCUBINSize");
    require(library, cubin, "nvrtcGetCUBIN");
    require(library, ptx_size, "nvrtcGetPTXSize");
    require(library, ptx, "nvrtcGetPTX");
  }

  void check(nvrtc::Result result, const char* call) const {
    if (result != nvrtc::success) {
      throw Error(ATTUNE_COMPILE_ERROR, fmt::format("{} failed: {}", call, error_string(result)));
    }
  }

  struct Run;
  /// A program compiled for this compute capability, and what the compiler said. Throws Error{ATTUNE_COMPILE_ERROR}.
  [[nodiscard]] Run run(const Source& source, int capability) const;

  /// A text or image of the program: its size, then its bytes.
  std::string read(nvrtc::Program program, nvrtc::GetSize* get_size, nvrtc::GetText* get, const char* call) const {
    std::size_t size = 0;
    check(get_size(program, &size), call);
    std::string bytes(size, '\0');
    if (size != 0) check(get(program, bytes.data()), call);
    return bytes;
  }
};

Compiler::Compiler() : library_(std::make_unique<Library>()) {
  void* library = nullptr;
  for (const std::string& name : candidates()) {
    // Never closed again: loading it costs more than a small kernel's compilation.
    library = dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) continue;
    library_->path = name;
    break;
  }
  if (library == nullptr) {
    throw Error(
        ATTUNE_NOT_COMPILED,
        fmt::format("no NVRTC to compile kernels with: libnvrtc is neither in the loader's path nor in {}; install the "
                    "CUDA toolkit or its libnvrtc (12 or 13; pip install nvidia-cuda-nvrtc), or set CUDA_HOME",
                    cuda_root_names));
  }
  const link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && *map->l_name != '\0')
    library_->path = map->l_name;
  open_builtins_beside(library_->path);

  library_->resolve(library);
  int major = 0;
  int minor = 0;
  library_->check(library_->version(&major, &minor), "nvrtcVersion");
  library_->major = major;
  library_->version_text = fmt::format("{}.{}", major, minor);
  // Updates of one version differ in what they generate and in their size, not in what they report.
  std::error_code ignored;
  const auto bytes = std::filesystem::file_size(library_->path, ignored);
  library_->identity = ignored ? library_->version_text : fmt::format("{}+{}", library_->version_text, bytes);
}

Compiler::~Compiler() = default;

std::string Compiler::version() const { return library_->version_text; }

std::string Compiler::identity() const { return library_->identity; }

std::string Compiler::path() const { return library_->path; }

std::string arch_name(int capability) { return fmt::format("sm_{}", capability); }

std::vector<std::string> compile_options(const Family& family, int capability) {
  std::vector<std::string> options = compile_flags();
  options.push_back("--gpu-architecture=sm_" + family.target(capability));
  options.emplace_back("--ptxas-options=-v");
  if (!environment("ATTUNE_LINE_INFO").empty()) options.emplace_back("--generate-line-info");
  return options;
}

struct Compiler::Library::Run {
  std::unique_ptr<void, std::function<void(nvrtc::Program)>> program;
  std::string log;
};

Compiler::Library::Run Compiler::Library::run(const Source& source, int capability) const {
  std::vector<std::string> options = compile_options(family_of(source.variant), capability);
  // Next to a driver NVRTC 13 keeps a cache of its own, and says nothing of registers and spills on a hit.
  if (major >= 13) options.emplace_back("--no-cache");
  std::vector<const char*> arguments;
  arguments.reserve(options.size());
  for (const std::string& option : options) arguments.push_back(option.c_str());

  nvrtc::Program created = nullptr;
  check(create(&created, source.text.c_str(), (source.name + ".cu").c_str(), 0, nullptr, nullptr),
        "nvrtcCreateProgram");
  Run done{.program = {created, [this](nvrtc::Program program) { destroy(&program); }}, .log = {}};
  const nvrtc::Result result = compile(created, static_cast<int>(arguments.size()), arguments.data());
  done.log = read(created, log_size, log, "nvrtcGetProgramLog");
  if (result != nvrtc::success) {
    throw Error(ATTUNE_COMPILE_ERROR,
                fmt::format("NVRTC {} cannot compile {} for {} ({}):\n{}", version_text, source.name,
                            arch_name(capability), error_string(result), done.log.c_str()));
  }
  return done;
}

Compiled Compiler::compile(const Source& source, int capability) const {
  const auto start = std::chrono::steady_clock::now();
  const Library::Run done = library_->run(source, capability);
  Compiled compiled;
  compiled.image = library_->read(done.program.get(), library_->cubin_size, library_->cubin, "nvrtcGetCUBIN");
  compiled.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  compiled.usage = parse_usage(done.log, compiled.image);
  return compiled;
}

std::string Compiler::ptx(const Source& source, int capability) const {
  const Library::Run done = library_->run(source, capability);
  std::string text = library_->read(done.program.get(), library_->ptx_size, library_->ptx, "nvrtcGetPTX");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

}  // namespace attune
