// What ptxas and the cubin say about a kernel. The cubin may come from a cache folder, so nothing in it is
// trusted: every offset is checked before it is followed.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include "runtime/compiler/compile.hpp"

namespace attune {
namespace {

/// The largest number that stands right before `words` anywhere in the text; 0 if none does.
int largest_before(std::string_view text, std::string_view words) {
  int result = 0;
  for (std::size_t at = text.find(words); at != std::string_view::npos; at = text.find(words, at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
    int value = 0;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + at, value);
    if (error == std::errc()) result = std::max(result, value);
  }
  return result;
}

/// A T at this offset, or nothing where the file ends first.
template <class T>
std::optional<T> read_at(const std::string& file, std::uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof(T));
  return value;
}

/// The ELF64 file header (System V ABI, "ELF Header").
struct ElfHeader {
  unsigned char ident[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, program_headers, section_headers;
  std::uint32_t flags;
  std::uint16_t header_size, program_entry_size, program_count, section_entry_size, section_count, names_section;
};
static_assert(sizeof(ElfHeader) == 64);

/// One ELF64 section header (System V ABI, "Sections").
struct SectionHeader {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_size;
};
static_assert(sizeof(SectionHeader) == 64);

/// Bytes of machine code: the sections .text.<kernel> of a cubin; 0 for anything that is not a whole ELF64.
long long code_bytes(const std::string& cubin) {
  const auto header = read_at<ElfHeader>(cubin, 0);
  constexpr unsigned char magic[] = {0x7f, 'E', 'L', 'F', 2, 1};  // 64 bits, little endian
  if (!header || std::memcmp(header->ident, magic, sizeof(magic)) != 0) return 0;
  if (header->section_entry_size != sizeof(SectionHeader) || header->section_headers > cubin.size()) return 0;

  const auto section = [&](std::uint64_t index) {
    return read_at<SectionHeader>(cubin, header->section_headers + index * sizeof(SectionHeader));
  };
  const auto names = section(header->names_section);
  if (!names || names->offset > cubin.size() || names->size > cubin.size() - names->offset) return 0;
  const std::string_view strings(cubin.data() + names->offset, names->size);

  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < header->section_count; ++i) {
    const auto candidate = section(i);
    if (!candidate) return 0;
    if (candidate->name >= strings.size() || !strings.substr(candidate->name).starts_with(".text.")) continue;
    if (candidate->offset > cubin.size() || candidate->size > cubin.size() - candidate->offset) return 0;
    total += candidate->size;
  }
  return static_cast<long long>(total);
}

}  // namespace

ResourceUsage parse_usage(const std::string& ptxas_log, const std::string& cubin) {
  return {.registers = largest_before(ptxas_log, " registers"),
          .static_shared_bytes = largest_before(ptxas_log, " bytes smem"),
          .stack_bytes = largest_before(ptxas_log, " bytes stack frame"),
          .spill_stores = largest_before(ptxas_log, " bytes spill stores"),
          .spill_loads = largest_before(ptxas_log, " bytes spill loads"),
          .code_bytes = code_bytes(cubin),
          .serialized = ptxas_log.find("instructions are serialized") != std::string::npos};
}

}  // namespace attune
