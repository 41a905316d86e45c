#include "runtime/cli/disassembly.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/files.hpp"
#include "runtime/cli/machine.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;

/// A word of a shell command.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// What the command prints; nothing when it fails.
std::optional<std::string> output_of(const std::string& command) {
  std::FILE* const pipe = popen(command.c_str(), "r");  // NOLINT(cert-env33-c): the words are quoted
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  std::array<char, 1 << 16> part{};
  while (const std::size_t size = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), size);
  return pclose(pipe) == 0 ? std::optional(std::move(text)) : std::nullopt;
}

/// The instruction's name without its modifiers on a line as `/*0040*/  @P0 HGMMA.64x128x16.F32.BF16 R24, ...`; else
/// "".
std::string_view opcode(std::string_view line) {
  const std::size_t address_end = line.find("*/");
  if (address_end == std::string_view::npos) return {};
  line.remove_prefix(address_end + 2);
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t{"), line.size()));
    if (!line.starts_with('@')) return line.substr(0, line.find_first_of(" \t.;"));
    line.remove_prefix(std::min(line.find(' '), line.size()));
  }
}

}  // namespace

InstructionCounts count_instructions(std::string_view disassembly) {
  InstructionCounts counts;
  const std::array<std::pair<std::string_view, int*>, 4> counted{
      {{"HGMMA", &counts.HGMMA}, {"HMMA", &counts.HMMA}, {"LDL", &counts.LDL}, {"STL", &counts.STL}}};
  while (!disassembly.empty()) {
    const std::size_t end = std::min(disassembly.find('\n'), disassembly.size());
    const std::string_view found = opcode(disassembly.substr(0, end));
    for (const auto& [name, count] : counted) {
      if (found == name) ++*count;
    }
    disassembly.remove_prefix(std::min(end + 1, disassembly.size()));
  }
  return counts;
}

Disassembler::Disassembler() {
  for (const char* name : {"nvdisasm", "cuobjdump"}) {
    if (const std::optional<fs::path> found = find_cuda_tool(name)) {
      path_ = *found;
      return;
    }
  }
  throw Error(ATTUNE_NOT_COMPILED, fmt::format("neither nvdisasm nor cuobjdump is in {}", cuda_tool_places));
}

std::string Disassembler::text(std::string_view cubin) const {
  const ScratchFolder folder;
  const fs::path file = folder.path() / "kernel.cubin";
  write_file(file, cubin);
  const std::string option = path_.filename() == "cuobjdump" ? " -sass" : "";
  auto text =
      output_of(fmt::format("{}{} {} 2>/dev/null", shell_word(path_.string()), option, shell_word(file.string())));
  if (!text) throw Error(ATTUNE_INTERNAL_ERROR, fmt::format("{} cannot read the code that NVRTC made", path_.string()));
  return std::move(*text);
}

}  // namespace attune::cli
