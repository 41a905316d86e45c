// attune cache: what was compiled at run time and kept on disk.
#include <fmt/format.h>

#include <memory>

#include "runtime/cache.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/output.hpp"
#include "runtime/text.hpp"

namespace attune::cli {
namespace {

struct Options {
  std::string folder;
  bool json = false;

  [[nodiscard]] Cache cache() const {
    return Cache(folder.empty() ? default_cache_root() : std::filesystem::path(folder));
  }
};

nlohmann::ordered_json entries_json(const Cache& cache, const std::vector<CacheEntry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const CacheEntry& entry : entries) {
    rows.push_back({{"name", entry.name},
                    {"arch", entry.arch},
                    {"hash", entry.hash},
                    {"bytes", entry.bytes},
                    {"valid", entry.valid},
                    {"problem", entry.problem}});
  }
  return {{"root", cache.root().string()}, {"entries", rows}};
}

Exit list(const Options& options) {
  const Cache cache = options.cache();
  const std::vector<CacheEntry> entries = cache.list();
  if (options.json) {
    print_json(entries_json(cache, entries));
    return Exit::done;
  }
  Table table({{"name"}, {"arch"}, {"bytes", Align::right}, {"state"}});
  double bytes = 0;
  for (const CacheEntry& entry : entries) {
    table.add(
        {entry.name, entry.arch, bytes_text(static_cast<double>(entry.bytes)), entry.valid ? "good" : entry.problem});
    bytes += static_cast<double>(entry.bytes);
  }
  if (!table.empty()) fmt::print("{}", table.text());
  fmt::print("{}, {} in {}\n", counted(static_cast<long long>(entries.size()), "kernel"), bytes_text(bytes),
             cache.root().string());
  return Exit::done;
}

Exit verify(const Options& options) {
  const Cache cache = options.cache();
  const std::vector<CacheEntry> entries = cache.list();
  const auto bad = std::ranges::count(entries, false, &CacheEntry::valid);
  if (options.json) {
    print_json(entries_json(cache, entries));
  } else {
    for (const CacheEntry& entry : entries) {
      if (!entry.valid) fmt::print("{}: {}\n", entry.folder.string(), entry.problem);
    }
    fmt::print("{} checked, {} bad{}\n", counted(static_cast<long long>(entries.size()), "kernel"), bad,
               bad > 0 ? "; a bad one is rebuilt when next needed" : "");
  }
  return bad == 0 ? Exit::done : Exit::check_failed;
}

Exit clear(const Options& options) {
  const Cache cache = options.cache();
  const std::size_t removed = cache.clear();
  if (options.json) {
    print_json({{"root", cache.root().string()}, {"removed", removed}});
  } else {
    fmt::print("removed {} from {}\n", counted(static_cast<long long>(removed), "kernel"), cache.root().string());
  }
  return Exit::done;
}

}  // namespace

Command cache_command(CLI::App& root) {
  auto options = std::make_shared<Options>();
  CLI::App* app = root.add_subcommand("cache", "Kernels compiled at run time: list, verify, clear");
  app->require_subcommand(1);
  app->add_option("--cache-dir", options->folder,
                  "The folder [default: $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune]")
      ->option_text("DIR");
  app->add_flag("--json", options->json, "Print as JSON");
  app->fallthrough();
  CLI::App* list_app = app->add_subcommand("list", "Each kernel, its size and whether it is whole");
  CLI::App* verify_app = app->add_subcommand("verify", "Check every kernel; exit 1 if one is bad");
  app->add_subcommand("clear", "Remove every kernel");
  for (CLI::App* subcommand : app->get_subcommands(nullptr)) subcommand->fallthrough();
  app->footer(R"(Examples:
  attune cache list
  attune cache verify --json)");
  return {.app = app, .run = [options, list_app, verify_app] {
            if (list_app->parsed()) return list(*options);
            if (verify_app->parsed()) return verify(*options);
            return clear(*options);
          }};
}

}  // namespace attune::cli
