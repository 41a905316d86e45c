// attune cache: what was compiled at run time and kept on disk.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <chrono>
#include <memory>

#include "runtime/base/text.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/cache/limit.hpp"
#include "runtime/cli/command.hpp"
#include "runtime/cli/failure.hpp"
#include "runtime/cli/output.hpp"

namespace attune::cli {
namespace {

struct CacheOptions {
  std::string folder;
  std::string bytes;  ///< of prune
  bool json = false;

  [[nodiscard]] Cache cache() const {
    return Cache(folder.empty() ? default_cache_root() : std::filesystem::path(folder));
  }
};

/// In UTC.
std::string time_text(std::chrono::system_clock::time_point time, fmt::string_view format) {
  const std::tm parts = fmt::gmtime(std::chrono::system_clock::to_time_t(time));
  return fmt::format(fmt::runtime(format), parts);
}

nlohmann::ordered_json entries_json(const Cache& cache, const std::vector<CacheEntry>& entries) {
  auto rows = nlohmann::ordered_json::array();
  for (const CacheEntry& entry : entries) {
    rows.push_back({{"name", entry.name},
                    {"arch", entry.arch},
                    {"hash", entry.hash},
                    {"bytes", entry.bytes},
                    {"last_use", time_text(entry.last_use, "{:%Y-%m-%dT%H:%M:%SZ}")},
                    {"valid", entry.valid},
                    {"problem", entry.problem}});
  }
  return {{"root", cache.root().string()}, {"limit", cache.limit()}, {"entries", rows}};
}

Exit list(const CacheOptions& options) {
  const Cache cache = options.cache();
  const std::vector<CacheEntry> entries = cache.list();
  if (options.json) {
    print_json(entries_json(cache, entries));
    return Exit::done;
  }
  Table table({{"name"}, {"arch"}, {"bytes", Align::right}, {"last use (UTC)"}, {"state"}});
  double bytes = 0;
  for (const CacheEntry& entry : entries) {
    table.add({entry.name, entry.arch, bytes_text(static_cast<double>(entry.bytes)),
               time_text(entry.last_use, "{:%Y-%m-%d %H:%M}"), entry.valid ? "good" : entry.problem});
    bytes += static_cast<double>(entry.bytes);
  }
  if (!table.empty()) fmt::print("{}", table.text());
  const std::string at_most =
      cache.limit() > 0 ? fmt::format(" of at most {}", bytes_text(static_cast<double>(cache.limit()))) : "";
  fmt::print("{}, {}{} in {}\n", counted(static_cast<long long>(entries.size()), "kernel"), bytes_text(bytes), at_most,
             cache.root().string());
  return Exit::done;
}

Exit verify(const CacheOptions& options) {
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

Exit clear(const CacheOptions& options) {
  const Cache cache = options.cache();
  const std::size_t removed = cache.clear();
  if (options.json) {
    print_json({{"root", cache.root().string()}, {"removed", removed}});
  } else {
    fmt::print("removed {} from {}\n", counted(static_cast<long long>(removed), "kernel"), cache.root().string());
  }
  return Exit::done;
}

Exit prune(const CacheOptions& options) {
  const auto bytes = parse_bytes(options.bytes);
  if (!bytes) {
    throw Failure(Exit::bad_usage, fmt::format("--bytes is {}; it must be a size such as 512M or 2G", options.bytes));
  }
  const Cache cache = options.cache();
  const Pruned pruned = cache.prune(*bytes);
  if (options.json) {
    print_json({{"root", cache.root().string()},
                {"removed", pruned.kernels},
                {"bytes", pruned.bytes},
                {"bytes_left", pruned.bytes_left}});
  } else {
    fmt::print("removed {}, {}, from {}; {} left\n", counted(static_cast<long long>(pruned.kernels), "kernel"),
               bytes_text(static_cast<double>(pruned.bytes)), cache.root().string(),
               bytes_text(static_cast<double>(pruned.bytes_left)));
  }
  return Exit::done;
}

}  // namespace

Command cache_command(CLI::App& root) {
  auto options = std::make_shared<CacheOptions>();
  CLI::App* app = root.add_subcommand("cache", "Kernels compiled at run time: list, verify, prune, clear");
  app->require_subcommand(1);
  app->add_option("--cache-dir", options->folder,
                  "The folder [default: $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune]")
      ->option_text("DIR");
  app->add_flag("--json", options->json, "Print as JSON");
  app->fallthrough();
  CLI::App* list_app =
      app->add_subcommand("list", "Each kernel, its size, its last use to the hour, and whether it is whole");
  CLI::App* verify_app = app->add_subcommand("verify", "Check every kernel; exit 1 if one is bad");
  CLI::App* prune_app = app->add_subcommand("prune", "Remove the kernels that were not used for the longest time");
  prune_app->add_option("--bytes", options->bytes, "What may be left: 512M, 2G, ...")->required()->option_text("N");
  app->add_subcommand("clear", "Remove every kernel");
  for (CLI::App* subcommand : app->get_subcommands(nullptr)) subcommand->fallthrough();
  app->footer(R"(Examples:
  attune cache list
  attune cache verify --json
  attune cache prune --bytes 512M

A cache that would hold more than $ATTUNE_CACHE_BYTES (1G; 0: no limit) prunes itself.)");
  return {.app = app, .run = [options, list_app, verify_app, prune_app] {
            if (list_app->parsed()) return list(*options);
            if (verify_app->parsed()) return verify(*options);
            if (prune_app->parsed()) return prune(*options);
            return clear(*options);
          }};
}

}  // namespace attune::cli
