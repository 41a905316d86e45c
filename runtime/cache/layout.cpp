#include "runtime/cache/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>

namespace attune::cache {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_name_length = 150;  // leaves room for the hash and suffixes below NAME_MAX
constexpr std::size_t hash_digits = 32;
constexpr std::string_view lock_suffix = ".lock";
constexpr std::string_view unfinished_suffix = ".tmp-";

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

bool is_hash(std::string_view text) {
  return text.size() == hash_digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// Whether a folder's name is one that this cache gives: <name>-<hash>.
bool is_entry_name(std::string_view name) {
  const std::size_t dash = name.rfind('-');
  return dash != std::string_view::npos && dash > 0 && name.front() != '.' && is_hash(name.substr(dash + 1));
}

/// The entry that .<entry>.tmp-<random> and .<entry>.lock belong to; empty for any other name.
std::string begun_entry(std::string_view name) {
  std::size_t end = name.rfind(unfinished_suffix);
  if (end == std::string_view::npos && name.ends_with(lock_suffix)) end = name.size() - lock_suffix.size();
  if (!name.starts_with('.') || end == std::string_view::npos || end == 0) return {};
  const std::string_view entry = name.substr(1, end - 1);
  return is_entry_name(entry) ? std::string(entry) : std::string();
}

/// What `pick` makes of the name of everything in the folders of architectures, below its folder there; where that is
/// empty, nothing. Sorted, each once.
std::vector<fs::path> collect(const fs::path& root, const std::function<std::string(const std::string&)>& pick) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator arch(version_folder(root), error), end; !error && arch != end; arch.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator entry(arch->path(), inner); !inner && entry != end; entry.increment(inner)) {
      const std::string picked = pick(entry->path().filename().string());
      if (!picked.empty()) result.push_back(arch->path() / picked);
    }
  }
  std::ranges::sort(result);
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

/// Opens `names` one below the other, from the root on.
OpenedFolder open_chain(const fs::path& root, const std::vector<std::string>& names) {
  OpenedFolder opened{open_folder(root), {}};
  fs::path path = root;
  for (std::size_t depth = 0; opened.fd.open(); ++depth) {
    if (const std::string writers = other_writers(opened.fd); !writers.empty()) {
      const std::string refusal =
          fmt::format("{} {}; make it yours and run chmod go-w on it, or set ATTUNE_CACHE_DIR to a folder of your own",
                      path.string(), writers);
      return {FileDescriptor(), refusal};
    }
    if (depth == names.size()) break;
    opened.fd = open_folder(opened.fd, names[depth], Links::follow);
    path /= names[depth];
  }
  return opened;
}

std::string version_name() { return fmt::format("v{}", format_version); }

}  // namespace

fs::path version_folder(const fs::path& root) { return root / version_name(); }

std::string entry_name(const CacheKey& key) { return sanitised(key.name) + "-" + key.hash; }

std::string arch_folder_name(const std::string& arch) { return sanitised(arch); }

fs::path entry_folder(const fs::path& root, const CacheKey& key) {
  return version_folder(root) / arch_folder_name(key.arch) / entry_name(key);
}

fs::path lock_path(const fs::path& folder) {
  return folder.parent_path() / fmt::format(".{}{}", folder.filename().string(), lock_suffix);
}

fs::path unfinished_prefix(const fs::path& folder) {
  return folder.parent_path() / fmt::format(".{}{}", folder.filename().string(), unfinished_suffix);
}

OpenedFolder open_version(const fs::path& root) { return open_chain(root, {version_name()}); }

OpenedFolder open_arch(const fs::path& root, const std::string& arch) {
  return open_chain(root, {version_name(), arch_folder_name(arch)});
}

std::vector<fs::path> entry_folders(const fs::path& root) {
  return collect(root, [](const std::string& name) { return is_entry_name(name) ? name : std::string(); });
}

std::vector<fs::path> begun_folders(const fs::path& root) { return collect(root, begun_entry); }

void remove_unfinished(const fs::path& folder) {
  const std::string prefix = unfinished_prefix(folder).filename().string();
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator it(folder.parent_path(), error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) left.push_back(it->path());
  }
  for (const fs::path& path : left) fs::remove_all(path, error);
}

void remove_entry(const fs::path& folder) {
  std::error_code ignored;
  try {
    const fs::path unique = make_unique_folder(unfinished_prefix(folder));
    std::error_code error;
    fs::rename(folder, unique / "dropped", error);
    fs::remove_all(unique, ignored);
    if (!error) return;
  } catch (const fs::filesystem_error&) {
    // No place for it to go to: it goes piece by piece.
  }
  fs::remove_all(folder, ignored);
}

}  // namespace attune::cache
