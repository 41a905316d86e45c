#include "generator/bundle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "generator/check.hpp"
#include "generator/hash.hpp"
#include "generator/variant_json.hpp"
#include "templates/params.h"

namespace attune {
namespace {

// The last bytes tell a file that went through a conversion of line ends.
constexpr std::string_view magic{"ATTUNE\r\n", 8};
constexpr std::uint32_t format_version = 3;
constexpr std::string_view attune_version = ATTUNE_VERSION;

constexpr std::size_t format_offset = 8;
constexpr std::size_t abi_offset = 12;
constexpr std::size_t size_offset = 16;
constexpr std::size_t manifest_size_offset = 24;
constexpr std::size_t version_offset = 32;
constexpr std::size_t header_bytes = 64;
constexpr std::size_t checksum_bytes = 32;
constexpr std::size_t alignment = 64;
static_assert(attune_version.size() <= header_bytes - version_offset);

constexpr const char* rebuild = "rebuild it with attune pack of this version";

std::size_t aligned(std::size_t offset) { return (offset + alignment - 1) / alignment * alignment; }

template <class Integer>
void put(std::string& bytes, std::size_t offset, Integer value) {
  for (std::size_t i = 0; i < sizeof(Integer); ++i) bytes[offset + i] = static_cast<char>(value >> (8 * i) & 0xff);
}

template <class Integer>
Integer get(std::string_view bytes, std::size_t offset) {
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value |= static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  }
  return value;
}

Json row_of(const BundledKernel& kernel, std::size_t offset) {
  const Resources needs = resources(kernel.variant);
  Json archs = Json::array();
  if (kernel.variant.arch != 0) {
    for (const Arch& arch : target_archs(kernel.variant)) archs.push_back(arch.name);
  }
  return {{"name", kernel.name},
          {"template", family_of(kernel.variant).name},
          {"values", values_line(kernel.variant)},
          {"archs", archs},
          {"threads", needs.threads},
          {"shared_bytes", needs.shared_bytes},
          {"tables_only", kernel.tables_only},
          {"offset", offset},
          {"bytes", kernel.image.size()}};
}

/// Offsets count from the first image, which lies after the manifest that states them.
std::string manifest_of(const Bundle& bundle) {
  Json rows = Json::array();
  std::size_t offset = 0;
  for (const BundledKernel& kernel : bundle.kernels) {
    rows.push_back(row_of(kernel, offset));
    offset = aligned(offset + kernel.image.size());
  }
  Json tables = Json::array();
  for (const BundledTable& table : bundle.tables) tables.push_back({{"file", table.file}, {"text", table.text}});
  Json keys = Json::object();
  for (const Family& family : families()) keys[std::string{family.name}] = keys_line(family);
  return json_text(Json{{"kernels", rows}, {"tuned", tables}, {"keys", keys}});
}

/// What a bundle is refused for.
struct Refused {
  std::string what;
  std::string fix = rebuild;
};

/// The text before the first zero.
std::string_view version_in(std::string_view bytes) {
  const std::string_view field = bytes.substr(version_offset, header_bytes - version_offset);
  return field.substr(0, std::min(field.find('\0'), field.size()));
}

/// As it may stand in a message.
std::string printable(std::string_view text) {
  std::string result{text};
  std::ranges::replace_if(
      result, [](char c) { return c < ' ' || c > '~'; }, '?');
  return result;
}

std::optional<Refused> check_header(std::string_view bytes) {
  if (bytes.size() < header_bytes + checksum_bytes || !bytes.starts_with(magic)) {
    return Refused{"this is no bundle of kernels", "attune pack makes one"};
  }
  const auto format = get<std::uint32_t>(bytes, format_offset);
  if (format != format_version) {
    return Refused{fmt::format("the bundle has format {}; this version reads {}", format, format_version)};
  }
  const auto size = get<std::uint64_t>(bytes, size_offset);
  if (size != bytes.size()) {
    return Refused{
        fmt::format("the bundle has {} bytes instead of the {} that it was written with", bytes.size(), size),
        "copy it again"};
  }
  const std::size_t body = bytes.size() - checksum_bytes;
  if (xxh3_hex(bytes.substr(0, body)) != bytes.substr(body)) {
    return Refused{"the bundle is damaged: its checksum does not match", "copy it again"};
  }
  if (const std::string_view version = version_in(bytes); version != attune_version) {
    return Refused{fmt::format("the bundle was made by Attune {}; this is {}", printable(version), attune_version)};
  }
  const auto abi = get<std::uint32_t>(bytes, abi_offset);
  if (abi != ATTUNE_PARAMS_ABI) {
    return Refused{
        fmt::format("the bundle's kernels take parameters of ABI {}; this version has {}", abi, ATTUNE_PARAMS_ABI)};
  }
  if (get<std::uint64_t>(bytes, manifest_size_offset) > body - header_bytes) {
    return Refused{"the bundle's manifest is longer than the bundle"};
  }
  return std::nullopt;
}

/// A whole number that is not negative.
std::optional<std::uint64_t> count_of(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

std::string text_of(const Json& row, std::string_view key) {
  const auto found = row.find(key);
  const auto* const text = found != row.end() ? found->get_ptr<const std::string*>() : nullptr;
  return text != nullptr ? *text : std::string{};
}

/// Null where there is none.
const Json* list_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_array() ? &*found : nullptr;
}

std::optional<int> family_named(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  if (found == families().end()) return std::nullopt;
  return static_cast<int>(found - families().begin());
}

/// Nothing when one is unknown or the list is none.
std::optional<ArchSet> archs_of(const Json& row) {
  const auto found = row.find("archs");
  if (found == row.end() || !found->is_array()) return std::nullopt;
  ArchSet set = 0;
  for (const Json& one : *found) {
    const auto* const name = one.get_ptr<const std::string*>();
    const Arch* const arch = name != nullptr ? find_arch(*name) : nullptr;
    if (arch == nullptr) return std::nullopt;
    set |= set_of(*arch);
  }
  return set;
}

/// The name of a template whose keys are not those that it has here; empty where there is none.
std::string_view other_keys(const Json& manifest) {
  const auto keys = manifest.find("keys");
  for (const Family& family : families()) {
    if (keys == manifest.end() || !keys->is_object() || text_of(*keys, family.name) != keys_line(family)) {
      return family.name;
    }
  }
  return {};
}

/// A row of the manifest; `images` are all bytes that images may lie in.
std::optional<BundledKernel> read_row(const Json& row, std::string_view images, std::string& problem) {
  const auto refuse = [&](std::string what) {
    problem = std::move(what);
    return std::nullopt;
  };
  if (!row.is_object()) return refuse("an entry is no kernel");
  BundledKernel kernel;
  kernel.name = text_of(row, "name");
  const std::string family_name = text_of(row, "template");
  const std::optional<int> family = family_named(family_name);
  if (!family) return refuse(fmt::format("template \"{}\" is not known here", printable(family_name)));
  const std::optional<Variant> variant = variant_of(*family, text_of(row, "values"), problem);
  if (!variant) return std::nullopt;
  kernel.variant = *variant;
  const std::optional<ArchSet> archs = archs_of(row);
  if (!archs) return refuse("it is for GPUs that are not known here");
  kernel.variant.arch = *archs;
  if (const std::vector<Refusal> refusals = check(kernel.variant); !refusals.empty()) {
    return refuse(refusals.front().message);
  }
  if (kernel.name != kernel.variant.name()) {
    return refuse(fmt::format("these values are called {} here", kernel.variant.name()));
  }
  const Resources needs = resources(kernel.variant);
  if (count_of(row, "threads") != static_cast<std::uint64_t>(needs.threads) ||
      count_of(row, "shared_bytes") != static_cast<std::uint64_t>(needs.shared_bytes)) {
    return refuse("it wants another launch than it would get here");
  }
  const auto tables_only = row.find("tables_only");
  if (tables_only == row.end() || !tables_only->is_boolean()) {
    return refuse("it does not say whether tables alone ask for it");
  }
  kernel.tables_only = tables_only->get<bool>();
  const std::optional<std::uint64_t> offset = count_of(row, "offset");
  const std::optional<std::uint64_t> size = count_of(row, "bytes");
  if (!offset || !size || *size == 0 || *offset > images.size() || *size > images.size() - *offset) {
    return refuse("its image is not inside the bundle");
  }
  kernel.image = images.substr(*offset, *size);
  return kernel;
}

}  // namespace

std::string write_bundle(const Bundle& bundle) {
  const std::string manifest = manifest_of(bundle);
  std::string bytes(header_bytes, '\0');
  std::ranges::copy(magic, bytes.begin());
  put(bytes, format_offset, format_version);
  put<std::uint32_t>(bytes, abi_offset, ATTUNE_PARAMS_ABI);
  put<std::uint64_t>(bytes, manifest_size_offset, manifest.size());
  std::ranges::copy(attune_version, bytes.begin() + version_offset);
  bytes += manifest;
  for (const BundledKernel& kernel : bundle.kernels) {
    bytes.resize(aligned(bytes.size()), '\0');
    bytes += kernel.image;
  }
  put<std::uint64_t>(bytes, size_offset, bytes.size() + checksum_bytes);
  return bytes + xxh3_hex(bytes);
}

Result<Bundle> read_bundle(std::string_view bytes, const std::string& where) {
  Result<Bundle> result;
  const auto refuse = [&](std::string what, std::string fix) {
    result.value = {};
    result.problems.push_back({{.file = where}, std::move(what), std::move(fix)});
    return result;
  };
  if (const auto refused = check_header(bytes)) return refuse(refused->what, refused->fix);
  const std::string_view body = bytes.substr(0, bytes.size() - checksum_bytes);
  const auto manifest_bytes = static_cast<std::size_t>(get<std::uint64_t>(bytes, manifest_size_offset));
  const Json manifest = parse_json(body.substr(header_bytes, manifest_bytes));
  const Json* const rows = list_of(manifest, "kernels");
  const Json* const tables = list_of(manifest, "tuned");
  if (rows == nullptr || tables == nullptr) return refuse("the bundle's manifest is not what Attune writes", rebuild);
  if (const std::string_view name = other_keys(manifest); !name.empty()) {
    return refuse(fmt::format("template {} has other keys here than in the bundle", name), rebuild);
  }
  const std::string_view images = body.substr(std::min(aligned(header_bytes + manifest_bytes), body.size()));
  for (const Json& row : *rows) {
    std::string problem;
    std::optional<BundledKernel> kernel = read_row(row, images, problem);
    if (!kernel) {
      const std::string name = row.is_object() ? printable(text_of(row, "name")) : std::string{};
      return refuse(fmt::format("kernel {}: {}", name.empty() ? "without a name" : name, printable(problem)), rebuild);
    }
    result.value.kernels.push_back(std::move(*kernel));
  }
  for (const Json& table : *tables) {
    if (!table.is_object()) return refuse("an entry is no table of tuned problems", rebuild);
    result.value.tables.push_back({text_of(table, "file"), text_of(table, "text")});
  }
  return result;
}

}  // namespace attune
