#include "runtime/cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "generator/hash.hpp"
#include "runtime/files.hpp"
#include "templates/params.h"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr int format_version = 1;
constexpr std::size_t max_meta_bytes = 1 << 16;
constexpr std::size_t max_file_bytes = 1 << 28;
constexpr std::size_t max_name_length = 150;  // leaves room for the hash and suffixes below NAME_MAX
constexpr std::size_t hash_digits = 32;
constexpr double builder_patience = 120;  // seconds; no kernel takes that long to compile

constexpr const char* source_file = "kernel.cu";
constexpr const char* meta_file = "meta.json";

/// What the image is called, in the name of its file and in meta.json.
const char* image_kind(const std::string& arch) { return arch == emulator_arch ? "so" : "cubin"; }

std::string image_file(const std::string& arch) { return fmt::format("kernel.{}", image_kind(arch)); }

/// What a name may hold to be part of a path on any file system.
std::string sanitised(std::string_view name) {
  std::string result(name.substr(0, max_name_length));
  std::ranges::replace_if(
      result,
      [](char c) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        return !plain;
      },
      '_');
  return result.empty() ? "_" : result;
}

/// Appends a part in a form that no other sequence of parts shares.
void append_part(std::string& message, std::string_view part) {
  message += std::to_string(part.size());
  message += ':';
  message += part;
}

nlohmann::json meta_of(const CacheKey& key, const Source& source, const Compiled& compiled) {
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
            {"code_bytes", usage.code_bytes}}}};
}

ResourceUsage usage_of(const nlohmann::json& meta) {
  const nlohmann::json& usage = meta.at("usage");
  return {.registers = usage.at("registers").get<int>(),
          .static_shared_bytes = usage.at("static_shared_bytes").get<int>(),
          .stack_bytes = usage.at("stack_bytes").get<int>(),
          .spill_stores = usage.at("spill_stores").get<int>(),
          .spill_loads = usage.at("spill_loads").get<int>(),
          .code_bytes = usage.at("code_bytes").get<long long>()};
}

/// One entry as the disk has it: the kernel, or what is wrong with it.
struct Entry {
  CacheKey key;
  Compiled compiled;
  std::string problem;  ///< empty: whole
};

/// A file of the entry, held against the size and checksum that its meta.json states.
std::string checked_file(const fs::path& path, const nlohmann::json& stated, std::string& problem) {
  auto bytes = read_file(path, max_file_bytes);
  const std::string name = path.filename().string();
  if (!bytes) {
    problem = name + " is missing or unreadable";
  } else if (bytes->size() != stated.at("bytes").get<std::size_t>()) {
    problem = fmt::format("{} has {} bytes instead of {}", name, bytes->size(), stated.at("bytes").get<std::size_t>());
  } else if (xxh3_hex(*bytes) != stated.at("xxh3").get<std::string>()) {
    problem = name + " does not match its checksum";
  } else {
    return std::move(*bytes);
  }
  return {};
}

Entry read_entry(const fs::path& folder) {
  Entry entry;
  const auto text = read_file(folder / meta_file, max_meta_bytes);
  if (!text) {
    entry.problem = "meta.json is missing or unreadable";
    return entry;
  }
  try {
    const nlohmann::json meta = nlohmann::json::parse(*text);
    entry.key = {meta.at("name").get<std::string>(), meta.at("arch").get<std::string>(),
                 meta.at("hash").get<std::string>()};
    if (meta.at("format").get<int>() != format_version) entry.problem = "meta.json has another format";
    entry.compiled.usage = usage_of(meta);
    if (entry.problem.empty()) checked_file(folder / source_file, meta.at("source"), entry.problem);
    if (entry.problem.empty()) {
      const std::string& arch = entry.key.arch;
      entry.compiled.image = checked_file(folder / image_file(arch), meta.at(image_kind(arch)), entry.problem);
    }
  } catch (const nlohmann::json::exception&) {
    entry.problem = "meta.json is not what Attune wrote";
  }
  return entry;
}

/// The entry of this key: whole, damaged, or (nothing) not there.
std::optional<Entry> read_entry(const fs::path& folder, const CacheKey& key) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder, error);
  if (status.type() == fs::file_type::not_found || error) return std::nullopt;
  Entry entry = read_entry(folder);
  const bool same = entry.key.name == key.name && entry.key.arch == key.arch && entry.key.hash == key.hash;
  if (entry.problem.empty() && !same) entry.problem = "meta.json speaks of another kernel";
  return entry;
}

fs::path lock_path(const fs::path& folder) {
  return folder.parent_path() / ("." + folder.filename().string() + ".lock");
}

/// What the unfinished folders of this entry start with.
std::string unfinished_prefix(const fs::path& folder) { return "." + folder.filename().string() + ".tmp-"; }

/// Removes what a builder of this entry left when it died. Only for the holder of its lock.
void remove_unfinished(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator it(folder.parent_path(), error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(unfinished_prefix(folder))) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

/// Takes the entry out of sight in one step, then removes it.
void remove_entry(const fs::path& folder) {
  std::error_code error;
  fs::path away = folder;
  try {
    const fs::path unique = make_unique_folder(folder.parent_path() / unfinished_prefix(folder));
    away = unique / "dropped";
    fs::rename(folder, away);
    fs::remove_all(unique, error);
  } catch (const fs::filesystem_error&) {
    fs::remove_all(folder, error);
  }
}

bool is_hash(std::string_view text) {
  return text.size() == hash_digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether a folder's name is one that this cache gives: <name>-<hash>.
bool is_entry_name(const std::string& name) {
  const std::size_t dash = name.rfind('-');
  return dash != std::string::npos && dash > 0 && name.front() != '.' &&
         is_hash(std::string_view(name).substr(dash + 1));
}

/// Whether a name is that of an unfinished folder: .<name>-<hash>.tmp-<random>.
bool is_unfinished_name(const std::string& name) {
  const std::size_t suffix = name.rfind(".tmp-");
  return name.front() == '.' && suffix != std::string::npos && suffix > 0 && is_entry_name(name.substr(1, suffix - 1));
}

/// Every path <root>/v<format>/<arch>/<name> whose name passes, sorted.
template <class Predicate>
std::vector<fs::path> folders_below(const fs::path& root, Predicate passes) {
  std::vector<fs::path> result;
  std::error_code error;
  const fs::path base = root / fmt::format("v{}", format_version);
  for (fs::directory_iterator arch(base, error), end; !error && arch != end; arch.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator entry(arch->path(), inner); !inner && entry != end; entry.increment(inner)) {
      if (passes(entry->path().filename().string())) result.push_back(entry->path());
    }
  }
  std::ranges::sort(result);
  return result;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

CacheKey cache_key(const Source& source, const std::string& arch, const std::vector<std::string>& options,
                   const std::string& compiler) {
  std::string message;
  append_part(message, source.text);
  append_part(message, source.name);
  for (const std::string& option : options) append_part(message, option);
  append_part(message, arch);
  append_part(message, compiler);
  append_part(message, std::to_string(ATTUNE_PARAMS_ABI));
  return {source.name, arch, xxh3_hex(message)};
}

CacheKey cache_key(const Source& source, int capability, const std::string& compiler) {
  return cache_key(source, arch_name(capability), compile_options(family_of(source.variant), capability), compiler);
}

fs::path default_cache_root() {
  if (const std::string own = environment("ATTUNE_CACHE_DIR"); !own.empty()) return own;
  // A relative $XDG_CACHE_HOME is to be ignored (XDG Base Directory Specification).
  if (const fs::path xdg = environment("XDG_CACHE_HOME"); xdg.is_absolute()) return xdg / "attune";
  if (const fs::path home = environment("HOME"); home.is_absolute()) return home / ".cache" / "attune";
  return {};
}

void log_to_stderr(const std::string& line) { fmt::print(stderr, "attune: {}\n", line); }

Cache::Cache(fs::path root, CacheLog log)
    : root_(std::move(root)),
      log_(log ? std::move(log) : [](const std::string&) {}),
      said_unwritable_(std::make_shared<std::atomic<bool>>(false)) {}

fs::path Cache::folder_of(const CacheKey& key) const {
  return root_ / fmt::format("v{}", format_version) / sanitised(key.arch) / (sanitised(key.name) + "-" + key.hash);
}

void Cache::say_unwritable(const std::string& reason) const {
  if (!said_unwritable_->exchange(true)) log_("kernels are not kept on disk: " + reason);
}

void Cache::drop(const fs::path& folder, const std::string& problem) const {
  remove_entry(folder);
  log_(fmt::format("dropped a damaged cache entry ({}): {}", problem, folder.string()));
}

std::optional<Compiled> Cache::find(const CacheKey& key) const {
  if (root_.empty()) return std::nullopt;
  const fs::path folder = folder_of(key);
  auto entry = read_entry(folder, key);
  if (!entry) return std::nullopt;
  if (entry->problem.empty()) return std::move(entry->compiled);
  try {
    // What looks damaged may be an entry that another process is replacing: only the lock's holder can tell.
    const auto lock = FileLock::acquire(lock_path(folder), 0);
    if (!lock) return std::nullopt;
    entry = read_entry(folder, key);
    if (entry && entry->problem.empty()) return std::move(entry->compiled);
    if (entry) drop(folder, entry->problem);
  } catch (const fs::filesystem_error&) {
    log_(fmt::format("ignored a damaged cache entry ({}): {}", entry->problem, folder.string()));
  }
  return std::nullopt;
}

void Cache::publish(const CacheKey& key, const Source& source, const Compiled& compiled) const {
  const fs::path folder = folder_of(key);
  const fs::path unfinished = make_unique_folder(folder.parent_path() / unfinished_prefix(folder));
  std::error_code ignored;
  try {
    fs::permissions(unfinished, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                                    fs::perms::others_read | fs::perms::others_exec);
    write_file_durably(unfinished / source_file, source.text);
    write_file_durably(unfinished / image_file(key.arch), compiled.image);
    write_file_durably(unfinished / meta_file, meta_of(key, source, compiled).dump(2) + "\n");
    sync_folder(unfinished);
    fs::rename(unfinished, folder);
    sync_folder(folder.parent_path());
  } catch (const fs::filesystem_error&) {
    fs::remove_all(unfinished, ignored);
    throw;
  }
}

std::optional<FileLock> Cache::lock_for_building(const fs::path& folder) const {
  try {
    fs::create_directories(folder.parent_path());
    auto lock = FileLock::acquire(lock_path(folder), builder_patience);
    if (!lock) {
      log_(fmt::format("another process has held {} for {:.0f} s; not waiting for it", lock_path(folder).string(),
                       builder_patience));
    }
    return lock;
  } catch (const fs::filesystem_error& error) {
    say_unwritable(error.what());
    return std::nullopt;
  }
}

Compiled Cache::find_or_build(const CacheKey& key, const Source& source, const std::function<Compiled()>& build) const {
  if (root_.empty()) {
    say_unwritable("none of ATTUNE_CACHE_DIR, XDG_CACHE_HOME and HOME names a folder");
    return build();
  }
  if (auto found = find(key)) return std::move(*found);
  const fs::path folder = folder_of(key);
  const std::optional<FileLock> lock = lock_for_building(folder);
  if (!lock) return build();

  // Whoever held the lock before has built it, or found it damaged, or died.
  if (auto entry = read_entry(folder, key)) {
    if (entry->problem.empty()) return std::move(entry->compiled);
    drop(folder, entry->problem);
  }
  Compiled compiled = build();
  try {
    remove_unfinished(folder);
    publish(key, source, compiled);
  } catch (const fs::filesystem_error& error) {
    say_unwritable(error.what());
  }
  return compiled;
}

std::vector<CacheEntry> Cache::list() const {
  std::vector<CacheEntry> result;
  if (root_.empty()) return result;
  for (const fs::path& folder : folders_below(root_, is_entry_name)) {
    const std::string file_name = folder.filename().string();
    const std::size_t dash = file_name.rfind('-');
    CacheEntry listed;
    listed.folder = folder;
    listed.name = file_name.substr(0, dash);
    listed.arch = folder.parent_path().filename().string();
    listed.hash = file_name.substr(dash + 1);
    std::error_code error;
    for (fs::directory_iterator file(folder, error), end; !error && file != end; file.increment(error)) {
      std::error_code no_size;
      const auto bytes = file->file_size(no_size);
      if (!no_size) listed.bytes += static_cast<long long>(bytes);
    }
    const Entry entry = read_entry(folder);
    listed.problem = entry.problem;
    if (entry.problem.empty() && folder_of(entry.key) != folder) listed.problem = "meta.json speaks of another kernel";
    listed.valid = listed.problem.empty();
    result.push_back(std::move(listed));
  }
  return result;
}

std::size_t Cache::clear() const {
  std::size_t removed = 0;
  if (root_.empty()) return removed;
  for (const fs::path& folder : folders_below(root_, is_entry_name)) {
    remove_entry(folder);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder, error))) ++removed;
  }
  std::error_code ignored;
  for (const fs::path& folder : folders_below(root_, is_unfinished_name)) fs::remove_all(folder, ignored);
  return removed;
}

}  // namespace attune
