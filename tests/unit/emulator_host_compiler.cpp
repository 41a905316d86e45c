// From an emitted source to a shared object, by whatever C++ compiler this machine has.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/bundle/embedded.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "runtime/emulator/seam.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using emulator::HostCompiler;
using testing::EnvironmentVariable;
namespace fs = std::filesystem;

namespace {

/// A program that a shell runs.
fs::path script(const ScratchFolder& folder, const std::string& name, const std::string& body) {
  fs::path file = folder.path() / name;
  std::ofstream(file) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(file, fs::perms::owner_all);
  return file;
}

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
  const ScratchFolder temporary;
  const EnvironmentVariable setting("TMPDIR", temporary.path());
  const HostCompiler compiler;
  CHECK_FALSE(compiler.compile(small_kernel("")).image.empty());
  CHECK_THROWS_AS((void)compiler.compile(small_kernel("?")), Error);
  CHECK(fs::is_empty(temporary.path()));
}

TEST_CASE("CXX may bring arguments, which compilations get too") {
  const ScratchFolder folder;
  const std::string real = HostCompiler().path();
  const fs::path wrapper =
      script(folder, "wrapper", "echo \"$@\" >>" + folder.path().string() + "/log\nshift\nexec " + real + " \"$@\"");
  const EnvironmentVariable setting("CXX", "  " + wrapper.string() + "  --first ");
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
    const EnvironmentVariable setting("CXX", "/nowhere/g++ -m32");
    CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "CXX names /nowhere/g++"));
  }
  const ScratchFolder folder;
  const EnvironmentVariable none("CXX", "");
  const EnvironmentVariable path("PATH", folder.path());
  CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "PATH"));
}

TEST_CASE("a compiler that fails, dies or leaves nothing is an error that says so") {
  const ScratchFolder folder;
  const auto compile_with = [&](const std::string& body) {
    const EnvironmentVariable setting("CXX",
                                      script(folder, "cxx", "[ \"$1\" = --version ] && echo fake && exit 0\n" + body));
    return message_of(ATTUNE_COMPILE_ERROR, [] { (void)HostCompiler().compile(small_kernel("")); });
  };
  CHECK(contains(compile_with("echo no licence; exit 4"), "exit code 4"));
  CHECK(contains(compile_with("echo no licence >&2; exit 4"), "no licence"));
  CHECK(contains(compile_with("kill -9 $$"), "signal 9"));
  CHECK(contains(compile_with("exit 0"), "left no kernel.so"));
  const EnvironmentVariable setting("CXX", script(folder, "broken", "exit 1"));
  CHECK(contains(message_of(ATTUNE_NOT_COMPILED, [] { const HostCompiler compiler; }), "--version"));
}
