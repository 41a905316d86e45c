// The doctest main, and how the tests of the tool run it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/cli/tool.hpp"

namespace attune::testing {
namespace {

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string TemporaryFolder::file(const std::string& name, const std::string& text) const {
  std::ofstream(path() / name, std::ios::binary) << text;
  return (path() / name).string();
}

ToolResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment) {
  const TemporaryFolder streams;
  std::string command = "env";
  for (const std::string& setting : environment) command += " " + quoted(setting);
  command += " " + quoted(program);
  for (const std::string& argument : arguments) command += " " + quoted(argument);
  command += " >" + quoted(streams.path() / "out") + " 2>" + quoted(streams.path() / "err") + " </dev/null";
  const int status = std::system(command.c_str());
  return {.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = read(streams.path() / "out"),
          .err = read(streams.path() / "err")};
}

ToolResult attune_tool(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  return run_program(ATTUNE_TOOL, arguments, environment);
}

ToolResult attune_tool_on_fake_gpu(const std::vector<std::string>& arguments) {
  const TemporaryFolder libraries;
  std::filesystem::create_symlink(ATTUNE_FAKE_LIBCUDA, libraries.path() / "libcuda.so.1");
  const char* before = std::getenv("LD_LIBRARY_PATH");  // NOLINT(concurrency-mt-unsafe): nothing changes it
  const std::string path = libraries.path().string() + (before != nullptr ? std::string(":") + before : "");
  return attune_tool(arguments, {"LD_LIBRARY_PATH=" + path});
}

nlohmann::json parsed_json(const std::string& text) { return nlohmann::json::parse(text); }

std::string source_file(const std::string& relative) { return std::string(ATTUNE_SOURCE_DIR) + "/" + relative; }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace attune::testing
