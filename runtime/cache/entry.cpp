#include "runtime/cache/entry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "generator/hash.hpp"
#include "generator/json_fields.hpp"
#include "runtime/cache/layout.hpp"

namespace attune::cache {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::system_clock;

constexpr std::size_t max_meta_bytes = 1 << 16;
constexpr std::size_t max_file_bytes = 1 << 28;
constexpr auto use_granularity = std::chrono::hours(1);

constexpr const char* source_file = "kernel.cu";
constexpr const char* meta_file = "meta.json";

/// What the image is called, in the name of its file and in meta.json.
const char* image_kind(const std::string& arch) { return arch == emulator_arch ? "so" : "cubin"; }

std::string image_file(const std::string& arch) { return fmt::format("kernel.{}", image_kind(arch)); }

Json meta_of(const CacheKey& key, const Source& source, const Compiled& compiled) {
  const ResourceUsage& usage = compiled.usage;
  return {{"format", format_version},
          {"name", key.name},
          {"arch", key.arch},
          {"hash", key.hash},
          {image_kind(key.arch), {{"bytes", compiled.image.size()}, {"xxh3", xxh3_hex(compiled.image)}}},
          {"source", {{"bytes", source.text.size()}, {"xxh3", xxh3_hex(source.text)}}},
          {"seconds", compiled.seconds},
          {"usage",
           {{"registers", usage.registers},
            {"static_shared_bytes", usage.static_shared_bytes},
            {"stack_bytes", usage.stack_bytes},
            {"spill_stores", usage.spill_stores},
            {"spill_loads", usage.spill_loads},
            {"code_bytes", usage.code_bytes},
            {"serialized", usage.serialized}}}};
}

ResourceUsage usage_of(const Json& meta) {
  const Json& usage = meta.at("usage");
  return {.registers = usage.at("registers").get<int>(),
          .static_shared_bytes = usage.at("static_shared_bytes").get<int>(),
          .stack_bytes = usage.at("stack_bytes").get<int>(),
          .spill_stores = usage.at("spill_stores").get<int>(),
          .spill_loads = usage.at("spill_loads").get<int>(),
          .code_bytes = usage.at("code_bytes").get<long long>(),
          .serialized = usage.value("serialized", false)};
}

/// A file of the entry, unless it is missing or another user may have written it.
std::optional<std::string> own_file(const FileDescriptor& file, const std::string& name, std::size_t limit,
                                    std::string& problem) {
  auto bytes = read_file(file, limit);
  if (!bytes) {
    problem = name + " is missing or unreadable";
  } else if (const std::string writers = other_writers(file); !writers.empty()) {
    problem = fmt::format("{} {}", name, writers);
  } else {
    return bytes;
  }
  return std::nullopt;
}

/// The same, held against the size and checksum that the entry's meta.json states.
std::string checked_file(const FileDescriptor& folder, const std::string& name, const Json& stated,
                         std::string& problem) {
  auto bytes = own_file(open_file(folder, name), name, max_file_bytes, problem);
  if (!bytes) return {};
  if (bytes->size() != stated.at("bytes").get<std::size_t>()) {
    problem = fmt::format("{} has {} bytes instead of {}", name, bytes->size(), stated.at("bytes").get<std::size_t>());
  } else if (xxh3_hex(*bytes) != stated.at("xxh3").get<std::string>()) {
    problem = name + " does not match its checksum";
  } else {
    return std::move(*bytes);
  }
  return {};
}

Clock::time_point time_of(const struct stat& status) {
  const auto since = std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return Clock::time_point(std::chrono::duration_cast<Clock::duration>(since));
}

Entry read_files(const FileDescriptor& folder) {
  Entry entry;
  const FileDescriptor file = open_file(folder, meta_file);
  const auto text = own_file(file, meta_file, max_meta_bytes, entry.problem);
  if (!text) return entry;
  if (struct stat status = {}; ::fstat(file.get(), &status) == 0) entry.last_use = time_of(status);
  try {
    const Json meta = parse_json(*text);
    entry.key = {meta.at("name").get<std::string>(), meta.at("arch").get<std::string>(),
                 meta.at("hash").get<std::string>()};
    if (meta.at("format").get<int>() != format_version) entry.problem = "meta.json has another format";
    entry.compiled.usage = usage_of(meta);
    if (entry.problem.empty()) checked_file(folder, source_file, meta.at("source"), entry.problem);
    if (entry.problem.empty()) {
      const std::string& arch = entry.key.arch;
      entry.compiled.image = checked_file(folder, image_file(arch), meta.at(image_kind(arch)), entry.problem);
    }
  } catch (const Json::exception&) {
    entry.problem = "meta.json is not as Attune wrote it";
  }
  return entry;
}

/// `folder` is what opening the entry gave; its files are those of one entry even while that is replaced.
Entry read_opened(const FileDescriptor& folder) {
  Entry entry;
  if (!folder.open()) {
    entry.problem = "it is no folder that can be opened";
  } else if (const std::string writers = other_writers(folder); !writers.empty()) {
    entry.problem = "its folder " + writers;
  } else {
    entry = read_files(folder);
  }
  return entry;
}

}  // namespace

void write_entry(const fs::path& folder, const CacheKey& key, const Source& source, const Compiled& compiled) {
  write_file_durably(folder / source_file, source.text);
  write_file_durably(folder / image_file(key.arch), compiled.image);
  write_file_durably(folder / meta_file, json_text(meta_of(key, source, compiled), 2) + "\n");
  sync_folder(folder);
}

Entry read_entry(const FileDescriptor& parent, const std::string& name) {
  return read_opened(open_folder(parent, name, Links::refuse));
}

std::optional<Entry> read_entry(const FileDescriptor& arch, const CacheKey& key) {
  const FileDescriptor folder = open_folder(arch, entry_name(key), Links::refuse);
  if (!folder.open() && errno == ENOENT) return std::nullopt;
  Entry entry = read_opened(folder);
  const bool same = entry.key.name == key.name && entry.key.arch == key.arch && entry.key.hash == key.hash;
  if (entry.problem.empty() && !same) entry.problem = "meta.json speaks of another kernel";
  return entry;
}

void note_use(const FileDescriptor& arch, const CacheKey& key, const Entry& entry) {
  // A time to come is one of a clock that was wrong: it is put right at once.
  const auto age = Clock::now() - entry.last_use;
  if (age >= std::chrono::seconds(0) && age < use_granularity) return;
  const std::string name = fmt::format("{}/{}", entry_name(key), meta_file);
  ::utimensat(arch.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // what is read-only stays as it is
}

Clock::time_point last_use(const fs::path& folder) {
  struct stat status = {};
  return ::stat((folder / meta_file).c_str(), &status) == 0 ? time_of(status) : Clock::time_point();
}

long long bytes_in(const fs::path& folder) {
  long long total = 0;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
    std::error_code no_size;
    const auto bytes = file->file_size(no_size);
    if (!no_size) total += static_cast<long long>(bytes);
  }
  return total;
}

}  // namespace attune::cache
