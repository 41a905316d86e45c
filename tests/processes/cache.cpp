// A cache folder under many processes, killed ones among them.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "runtime/base/error.hpp"
#include "runtime/emulator/host_compiler.hpp"
#include "tests/processes/kernels.hpp"
#include "tests/processes/processes.hpp"

using namespace attune;
using namespace attune::process_tests;
namespace fs = std::filesystem;

namespace {

constexpr int crowd = 32;
constexpr long long no_limit = 0;

/// Of this run; ATTUNE_TEST_SEED repeats one.
unsigned run_seed() {
  const char* given = std::getenv("ATTUNE_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
  MESSAGE("ATTUNE_TEST_SEED=" << seed);
  return seed;
}

pid_t start_fetcher(const Workplace& place, const Gate& gate, unsigned seed, long long limit) {
  return start_worker(
      place, gate,
      {"keys", place.root().string(), place.tally().string(), std::to_string(seed), std::to_string(limit)});
}

/// The workers of one folder; those that were killed, and what all of them did.
struct Killing {
  std::set<pid_t> killed;
  int ended_well = 0;
  int ended_badly = 0;
};

/// Runs eight workers on an empty folder, kills one of them `kills` times at some moment and starts another for it,
/// then lets all end.
Killing run_and_kill(const Workplace& place, std::mt19937& random, int kills, long long limit) {
  Killing result;
  Gate gate;
  std::vector<pid_t> running;
  for (int i = 0; i < 8; ++i) running.push_back(start_fetcher(place, gate, random(), limit));
  gate.open();
  for (int i = 0; i < kills; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
    pid_t& victim = running[random() % running.size()];
    ::kill(victim, SIGKILL);
    const int how = wait_for(victim);
    if (how == -SIGKILL) {
      result.killed.insert(victim);
    } else {
      ++(how == 0 ? result.ended_well : result.ended_badly);
    }
    victim = start_fetcher(place, gate, random(), limit);
  }
  for (const pid_t process : running) ++(wait_for(process) == 0 ? result.ended_well : result.ended_badly);
  return result;
}

}  // namespace

TEST_CASE("32 processes that begin at once on an empty folder build each of 20 kernels once, and all get them right") {
  const unsigned seed = run_seed();
  const Workplace place;
  Gate gate;
  std::vector<pid_t> processes;
  for (unsigned i = 0; i < crowd; ++i) processes.push_back(start_fetcher(place, gate, seed + i, no_limit));
  gate.open();
  for (const pid_t process : processes) CHECK(wait_for(process) == 0);
  std::map<int, int> built;
  for (const Workplace::Build& build : place.builds()) ++built[build.kernel];
  CHECK(built.size() == kernel_count);
  for (const auto& one : built) {
    CAPTURE(one.first);
    CHECK(one.second == 1);
  }
  CHECK(place.said() == "");  // no checksum failed, nothing partial was read
  const auto entries = Cache(place.root()).list();
  CHECK(entries.size() == kernel_count);
  CHECK(std::ranges::all_of(entries, &CacheEntry::valid));
  CHECK(place.hidden("").empty());
}

TEST_CASE("32 processes that serve the same 20 problems compile each kernel once, and all results are right") {
  const unsigned seed = run_seed();
  const Workplace place;
  std::string compiler;
  try {
    compiler = emulator::HostCompiler().path();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  // In place of the compiler a script that notes each kernel it is asked for.
  const fs::path counting = place.folder() / "counting-c++";
  std::ofstream(counting) << "#!/bin/sh\ncase \"$*\" in *-DATTUNE_KERNEL=*) echo 0 $$ >> " << place.tally().string()
                          << ";; esac\nexec " << compiler << " \"$@\"\n";
  REQUIRE(::chmod(counting.c_str(), 0700) == 0);
  Gate gate;
  std::vector<pid_t> processes;
  for (unsigned i = 0; i < crowd; ++i) {
    processes.push_back(start_worker(place, gate, {"serve", place.root().string(), std::to_string(seed + i)},
                                     {"CXX=" + counting.string()}));
  }
  gate.open();
  for (const pid_t process : processes) CHECK(wait_for(process) == 0);
  CHECK(place.builds().size() == kernel_count);
  CHECK(Cache(place.root()).list().size() == kernel_count);
  CHECK(place.said() == "");
  CHECK(place.hidden("").empty());
}

TEST_CASE("builders that are killed cost at most one more build each, and leave nothing that the next ones mind") {
  constexpr int rounds = 8;
  constexpr int kills = 12;
  std::mt19937 random(run_seed());
  std::size_t killed = 0;
  std::size_t lost = 0;  // builds that came to nothing
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const Workplace place;
    const Killing result = run_and_kill(place, random, kills, no_limit);
    CHECK(result.ended_badly == 0);
    CHECK(result.ended_well >= 8);
    killed += result.killed.size();

    std::map<int, int> built;
    std::map<pid_t, int> last_of_killed;
    for (const Workplace::Build& build : place.builds()) {
      ++built[build.kernel];
      if (result.killed.contains(build.process)) last_of_killed[build.process] = build.kernel;
    }
    CHECK(built.size() == kernel_count);
    for (const auto& one : built) {
      CAPTURE(one.first);
      // Who was killed had at most one build under way: the last that it began.
      const auto under_way =
          std::ranges::count(last_of_killed, one.first, [](const auto& last) { return last.second; });
      CHECK(one.second <= 1 + under_way);
      lost += static_cast<std::size_t>(one.second - 1);
    }
    CHECK(place.said() == "");
    const Cache cache(place.root());
    const auto entries = cache.list();
    CHECK(entries.size() == kernel_count);
    CHECK(std::ranges::all_of(entries, &CacheEntry::valid));
    CHECK(place.hidden(".tmp-").empty());  // each was made again by another, who took what was left
    CHECK(cache.clear() == kernel_count);
    CHECK(place.hidden("").empty());
  }
  MESSAGE(killed << " killed, " << lost << " builds lost");
  CHECK(killed > 0);
}

TEST_CASE("killed while kernels come and go, a cache stays within its limit and right") {
  constexpr int rounds = 3;
  constexpr int kills = 12;
  constexpr long long limit = 100'000;  // of 420,000
  std::mt19937 random(run_seed());
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const Workplace place;
    const Killing result = run_and_kill(place, random, kills, limit);
    CHECK(result.ended_badly == 0);
    CHECK(place.said() == "");
    const Cache cache(place.root(), log_to_stderr, limit);
    const auto entries = cache.list();
    CHECK(std::ranges::all_of(entries, &CacheEntry::valid));
    long long bytes = 0;
    for (const CacheEntry& entry : entries) bytes += entry.bytes;
    MESSAGE(place.builds().size() << " builds, " << bytes << " bytes in the end");
    // Whoever entered the last one made room, but for what others held just then.
    CHECK(bytes <= 2 * limit);
    cache.prune(limit);
    CHECK(place.hidden("").empty());
  }
}

TEST_CASE("a folder that may only be read serves what it holds without a word, and says once that it keeps nothing") {
  const Workplace place;
  {
    const Cache cache(place.root());
    cache.find_or_build(key_of(0), source_of(0), [] { return compiled_of(0); });
  }
  // As an administrator would leave it: root's, and everybody's to read. For anybody else: one's own, and closed.
  const bool root = ::geteuid() == 0;
  const auto meta = Cache(place.root()).list().front().folder / "meta.json";
  fs::last_write_time(meta, fs::file_time_type::clock::now() - std::chrono::hours(5));
  const auto before = fs::last_write_time(meta);
  std::ofstream(place.tally()).close();
  REQUIRE(::chmod(place.tally().c_str(), 0666) == 0);
  REQUIRE(::chmod(place.folder().c_str(), 0755) == 0);
  std::vector<fs::path> folders{place.root()};
  for (const auto& entry : fs::recursive_directory_iterator(place.root())) {
    if (entry.is_directory()) folders.push_back(entry.path());
    if (!entry.is_directory()) REQUIRE(::chmod(entry.path().c_str(), 0444) == 0);
  }
  for (const fs::path& folder : folders) REQUIRE(::chmod(folder.c_str(), 0555) == 0);

  Gate gate;
  constexpr uid_t nobody = 65534;
  const pid_t process = start_worker(
      place, gate,
      {"read", place.root().string(), place.tally().string(), std::to_string(root ? nobody : ::geteuid())});
  gate.open();
  const int how = wait_for(process);
  if (how == 2 && place.said().find("cannot become another user") != std::string::npos) {
    MESSAGE("skipped: root here may write everywhere and cannot become another user");
  } else {
    CHECK(how == 0);
    const auto builds = place.builds();
    CHECK(builds.size() == 2);  // the one that is not there, each time
    for (const Workplace::Build& build : builds) CHECK(build.kernel == kernel_count - 1);
    const std::string said = place.said();
    CHECK(std::ranges::count(said, '\n') == 1);
    CHECK(said.starts_with("attune: kernels are not kept on disk: "));
    if (root) CHECK(fs::last_write_time(meta) == before);
  }
  for (const fs::path& folder : folders) REQUIRE(::chmod(folder.c_str(), 0755) == 0);
}
