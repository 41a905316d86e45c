// Running the attune tool as a person would: a process with arguments, an exit code, two streams.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/base/files.hpp"

namespace attune::testing {

struct ToolResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// A new folder that goes with everything in it.
class TemporaryFolder {
 public:
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

  /// Writes a file below it and returns its path.
  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const;

 private:
  ScratchFolder folder_{"attune-cli-"};
};

/// Runs `program arguments...` with these environment settings ("NAME=value") on top of the test's own.
ToolResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                       const std::vector<std::string>& environment = {});

/// The same of the attune tool.
ToolResult attune_tool(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

/// The same where the driver is the fake one, whose GPU takes every launch for 1.5 ms and computes nothing.
ToolResult attune_tool_on_fake_gpu(const std::vector<std::string>& arguments);

/// What a tool printed, in one place, as the library's reader is slow to compile. Throws where it is no JSON.
nlohmann::json parsed_json(const std::string& text);

/// The path of a file of the repository.
std::string source_file(const std::string& relative);

bool contains(const std::string& text, const std::string& part);

}  // namespace attune::testing
