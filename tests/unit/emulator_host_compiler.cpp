// From an emitted source to a shared object, by whatever C++ compiler this machine has.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "runtime/embedded.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/emulator/seam.hpp"
#include "runtime/error.hpp"
#include "runtime/files.hpp"

using namespace attune;
using emulator::HostCompiler;
namespace fs = std::filesystem;

namespace {

/// An environment variable with another value while this lives.
class Setting {
 public:
  Setting(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Setting() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

class Folder {
 public:
  Folder() : path_(make_unique_folder(fs::temp_directory_path() / "attune-test-")) {}
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  /// A program that a shell runs.
  [[nodiscard]] fs::path script(const std::string& name, const std::string& body) const {
    std::ofstream(path_ / name) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path_ / name, fs::perms::owner_all);
    return path_ / name;
  }

 private:
  fs::path path_;
};

std::string text_of(const fs::path& path) { return read_file(path, 1 << 20).value_or(""); }

Source small_kernel(const std::string& body) {
  return {Variant{}, "small_kernel",
          "enum class Dtype { fp16, bf16 };\nconstexpr unsigned warp_size = 32;\n"
          "struct Params { int value; };\n"
          "extern \"C\" __global__ void small_kernel(const __grid_constant__ Params params) {\n" +
              body + "\n}\n"};
}

/// What the constructor or the compilation throws.
std::string message_of(attune_status status, const auto& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.status() == status);
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the default variant of every template compiles to a shared object") {
  const HostCompiler compiler;
  CHECK_FALSE(compiler.version().empty());
  const Result<Source> source = emit(Variant{}, embedded_templates(), "test");
  REQUIRE(source.ok());
  const Compiled compiled = compiler.compile(source.value);
  CHECK(
      compiled.image.starts_with("\x7f"
                                 "ELF"));
  CHECK(contains(compiled.image, "attune_run_thread"));
  CHECK(compiled.seconds > 0);
}

TEST_CASE("the library carries the files compiled around a kernel, byte for byte") {
  const fs::path folder = fs::path(ATTUNE_SOURCE_DIR) / "runtime/emulator/kernel";
  CHECK(emulator::embedded_seam().size() == 3);
  for (const auto& [name, text] : emulator::embedded_seam()) {
    CAPTURE(name);
    CHECK(text == text_of(folder / name));
    CHECK(contains(emulator::seam_text(), text));
  }
}

TEST_CASE("what does not compile is said in the compiler's words, with the emitted line") {
  const HostCompiler compiler;
  const std::string message =
      message_of(ATTUNE_COMPILE_ERROR, [&] { (void)compiler.compile(small_kernel("nonsense();")); });
  CHECK(contains(message, "small_kernel.cu:5"));
  CHECK(contains(message, "nonsense"));
}

TEST_CASE("a compilation leaves nothing behind, whether it succeeds or not") {
  const Folder temporary;
  const Setting setting("TMPDIR", temporary.path());
  const HostCompiler compiler;
  CHECK_FALSE(compiler.compile(small_kernel("")).image.empty());
  CHECK_THROWS_AS((void)compiler.compile(small_kernel("?")), Error);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("CXX may bring arguments, which compilations get too") {
  const Folder folder;
  const std::string real = HostCompiler().path();
  const fs::path wrapper =
      folder.script("wrapper", "echo \"$@\" >>" + folder.path().string() + "/log\nshift\nexec " + real + " \"$@\"");
  const Setting setting("CXX", "  " + wrapper.string() + "  --first ");
  const HostCompiler compiler;
  CHECK(compiler.path() == wrapper.string() + " --first");
  CHECK(contains(compiler.identity(), compiler.path()));
  CHECK(contains(compiler.identity(), compiler.version()));
  CHECK_FALSE(compiler.compile(small_kernel("")).image.empty());
  const std::string log = text_of(folder.path() / "log");
  CHECK(contains(log, "--first --version\n"));
  std::string options = "--first";
  for (const std::string& option : emulator::host_options()) options += " " + option;
  CHECK(contains(log, options + " -DATTUNE_KERNEL=small_kernel "));
}

TEST_CASE("without a compiler the message says where it looked") {
  {
    const Setting setting("CXX", "/nowhere/g++ -m32");
    CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "CXX names /nowhere/g++"));
  }
  const Folder folder;
  const Setting none("CXX", "");
  const Setting path("PATH", folder.path());
  CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "PATH"));
}

TEST_CASE("a compiler that fails, dies or leaves nothing is an error that says so") {
  const Folder folder;
  const auto compile_with = [&](const std::string& body) {
    const Setting setting("CXX", folder.script("cxx", "[ \"$1\" = --version ] && echo fake && exit 0\n" + body));
    return message_of(ATTUNE_COMPILE_ERROR, [] { (void)HostCompiler().compile(small_kernel("")); });
  };
  CHECK(contains(compile_with("echo no licence; exit 4"), "exit code 4"));
  CHECK(contains(compile_with("echo no licence >&2; exit 4"), "no licence"));
  CHECK(contains(compile_with("kill -9 $$"), "signal 9"));
  CHECK(contains(compile_with("exit 0"), "left no kernel.so"));
  const Setting setting("CXX", folder.script("broken", "exit 1"));
  CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "--version"));
}
