// attune cache, as a person uses it.
#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>

#include "runtime/cache/cache.hpp"
#include "tests/cli/tool.hpp"

using namespace attune;
using namespace attune::testing;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// Leaves two kernels of 2,000 bytes and a little, the first used a day after the second.
void fill(const fs::path& root) {
  const Cache cache(root);
  int days = 1;
  for (const char* name : {"new", "old"}) {
    const Source source{Variant{}, name, name};
    Compiled compiled;
    compiled.image = std::string(2000, 'x');
    cache.find_or_build(cache_key(source, "sm_90", {}, "13.0"), source, [&] { return compiled; });
    for (const CacheEntry& entry : cache.list()) {
      if (entry.name != name) continue;
      // 2026-01-03 and 2026-01-02, 10:00 UTC
      const std::chrono::sys_seconds time =
          std::chrono::sys_days(std::chrono::year(2026) / 1 / 4) - std::chrono::days(days++) + std::chrono::hours(10);
      fs::last_write_time(entry.folder / "meta.json", std::chrono::file_clock::from_sys(time));
    }
  }
}

}  // namespace

TEST_CASE("cache list says how large a kernel is, when it was last used, and how much there may be") {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "cache";
  fill(root);
  const std::vector<std::string> settings{"ATTUNE_CACHE_DIR=" + root.string(), "ATTUNE_CACHE_BYTES=2M"};
  const std::string text = attune_tool({"cache", "list"}, settings).out;
  CHECK(contains(text, "last use (UTC)"));
  CHECK(contains(text, "2026-01-03 10:00"));
  CHECK(contains(text, "2026-01-02 10:00"));
  CHECK(contains(text, "of at most 2.0 MB"));
  const json listed = parsed_json(attune_tool({"cache", "list", "--json"}, settings).out);
  CHECK(listed["limit"] == 2 << 20);
  REQUIRE(listed["entries"].size() == 2);
  CHECK(listed["entries"][0]["last_use"] == "2026-01-03T10:00:00Z");
  CHECK(listed["entries"][0]["bytes"] > 1000);
}

TEST_CASE("cache prune removes what was not used for the longest time") {
  const TemporaryFolder folder;
  const fs::path root = folder.path() / "cache";
  fill(root);
  const std::vector<std::string> settings{"ATTUNE_CACHE_DIR=" + root.string()};
  CHECK(contains(attune_tool({"cache", "prune", "--bytes", "1M"}, settings).out, "removed 0 kernels"));
  const json pruned = parsed_json(attune_tool({"cache", "prune", "--bytes", "3K", "--json"}, settings).out);
  CHECK(pruned["removed"] == 1);
  CHECK(pruned["bytes"] > 1000);
  CHECK(pruned["bytes_left"] > 1000);
  const json listed = parsed_json(attune_tool({"cache", "list", "--json"}, settings).out);
  REQUIRE(listed["entries"].size() == 1);
  CHECK(listed["entries"][0]["name"] == "new");
}

TEST_CASE("cache prune wants a size") {
  CHECK(attune_tool({"cache", "prune"}).exit_code == 2);
  const ToolResult result = attune_tool({"cache", "prune", "--bytes", "much"});
  CHECK(result.exit_code == 2);
  CHECK(contains(result.err, "--bytes is much; it must be a size such as 512M or 2G"));
}

TEST_CASE("doctor says why a cache folder is not used") {
  const TemporaryFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  const ToolResult result = attune_tool({"doctor"}, {"ATTUNE_CACHE_DIR=" + folder.path().string()});
  CHECK(contains(result.out, "may be written by others than its owner (mode 0777)"));
  CHECK(contains(result.out, "chmod go-w"));
}
