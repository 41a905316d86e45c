// A cache keeps within its limit: what was used last stays.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>

#include "runtime/cache/limit.hpp"
#include "tests/unit/cache_bench.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using testing::EnvironmentVariable;
using namespace attune::cache_tests;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t image_bytes = 10'000;

Source numbered(int number) {
  return {Variant{}, "kernel_" + std::to_string(number), "// " + std::to_string(number) + "\n"};
}

CacheKey key_of(int number) { return cache_key(numbered(number), "sm_90", {}, "13.0"); }

void put(const Cache& cache, int number) {
  cache.find_or_build(key_of(number), numbered(number), [] { return compiled_of(image_bytes); });
}

/// The numbers of the kernels that are there, each whole.
std::vector<int> kept(const Cache& cache) {
  std::vector<int> numbers;
  for (const CacheEntry& entry : cache.list()) {
    CHECK(entry.valid);
    numbers.push_back(std::stoi(entry.name.substr(entry.name.find('_') + 1)));
  }
  std::ranges::sort(numbers);
  return numbers;
}

fs::path folder_of(const Cache& cache, int number) {
  for (const CacheEntry& entry : cache.list()) {
    if (entry.hash == key_of(number).hash) return entry.folder;
  }
  FAIL("there is no such kernel");
  return {};
}

void set_age(const Cache& cache, int number, std::chrono::hours age) {
  fs::last_write_time(folder_of(cache, number) / "meta.json", fs::file_time_type::clock::now() - age);
}

std::chrono::system_clock::duration age_of(const Cache& cache, int number) {
  for (const CacheEntry& entry : cache.list()) {
    if (entry.hash == key_of(number).hash) return std::chrono::system_clock::now() - entry.last_use;
  }
  FAIL("there is no such kernel");
  return {};
}

long long bytes_of(const Cache& cache) {
  long long total = 0;
  for (const CacheEntry& entry : cache.list()) total += entry.bytes;
  return total;
}

/// What one entry takes, its three files together.
long long entry_bytes() {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  put(cache, 0);
  return bytes_of(cache);
}

using Numbers = std::vector<int>;

}  // namespace

TEST_CASE("sizes are read as people write them") {
  CHECK(parse_bytes("0") == 0);
  CHECK(parse_bytes("123") == 123);
  CHECK(parse_bytes("64K") == 64LL << 10);
  CHECK(parse_bytes("512m") == 512LL << 20);
  CHECK(parse_bytes("2G") == 2LL << 30);
  CHECK(parse_bytes("2GB") == 2LL << 30);
  CHECK(parse_bytes("1TiB") == 1LL << 40);
  CHECK(parse_bytes("7B") == 7);
  for (const char* bad : {"", "G", "-1", "-1G", "1.5G", "2 G", "2X", "2GiBs", "2Gi B", "99999999999T", "2iB"}) {
    CAPTURE(bad);
    CHECK_FALSE(parse_bytes(bad).has_value());
  }
}

TEST_CASE("the limit follows the environment; a bad one is said, and 1 GiB it is") {
  const EnvironmentVariable variable("ATTUNE_CACHE_BYTES", {});
  std::vector<std::string> log;
  const auto limit = [&](const char* text) {
    variable.set(text);
    log.clear();
    return Cache("/nowhere", [&](const std::string& line) { log.push_back(line); }).limit();
  };
  CHECK(limit("512M") == 512LL << 20);
  CHECK(limit("0") == 0);
  CHECK(limit("") == 1LL << 30);
  CHECK(log.empty());
  CHECK(limit("lots") == 1LL << 30);
  REQUIRE(log.size() == 1);
  CHECK(log[0].find("ATTUNE_CACHE_BYTES is lots") != std::string::npos);
  variable.set({});
  CHECK(Cache("/nowhere").limit() == 1LL << 30);
}

TEST_CASE("a kernel too many makes those go that were not used for the longest time") {
  const long long each = entry_bytes();
  TemporaryCache temporary;
  const Cache cache = temporary.open(each * 9 / 2);  // four, and room for half a one
  for (int i = 0; i < 4; ++i) put(cache, i);
  CHECK(kept(cache) == Numbers{0, 1, 2, 3});
  set_age(cache, 0, 10h);
  set_age(cache, 1, 30h);
  set_age(cache, 2, 20h);
  set_age(cache, 3, 40h);
  put(cache, 4);  // five; at most 3.9 may be left
  CHECK(kept(cache) == Numbers{0, 2, 4});
  put(cache, 5);
  CHECK(kept(cache) == Numbers{0, 2, 4, 5});
  // Fetching is using.
  REQUIRE(cache.find(key_of(2)).has_value());
  put(cache, 6);
  CHECK(kept(cache).front() == 2);
  CHECK(bytes_of(cache) <= cache.limit());
  CHECK(names_in(temporary.root()).size() == kept(cache).size());  // nothing hidden is left
  CHECK(temporary.log().empty());
}

TEST_CASE("the kernel just made stays, however small the limit") {
  TemporaryCache temporary;
  const Cache cache = temporary.open(1);
  for (int i = 0; i < 3; ++i) {
    put(cache, i);
    CHECK(kept(cache) == Numbers{i});
  }
}

TEST_CASE("no limit, no eviction; a limit that comes later counts what is there") {
  TemporaryCache temporary;
  const long long each = entry_bytes();
  const Cache unlimited = temporary.open(0);
  const Cache limited = temporary.open(each * 5 / 2);
  put(limited, 0);
  for (int i = 1; i < 6; ++i) put(unlimited, i);
  CHECK(kept(unlimited).size() == 6);
  put(limited, 6);
  CHECK(bytes_of(limited) <= limited.limit());
}

TEST_CASE("nothing is counted while there is room, and all of it when the note of what there is was lost") {
  TemporaryCache temporary;
  const long long each = entry_bytes();
  const Cache cache = temporary.open(each * 9 / 2);
  put(cache, 0);
  // Entries that come by another way than a build are seen by the next count only.
  const auto smuggle = [&](int number) {
    TemporaryCache other;
    const Cache source_of_it = other.open();
    put(source_of_it, number);
    const fs::path folder = folder_of(source_of_it, number);
    fs::copy(folder, temporary.root() / "v1" / "sm_90" / folder.filename(), fs::copy_options::recursive);
    set_age(cache, number, 50h);
  };
  for (int i = 10; i < 15; ++i) smuggle(i);
  put(cache, 1);
  CHECK(kept(cache).size() == 7);
  for (const char* note : {"", "12", "-5\n", "x\n"}) {
    CAPTURE(note);
    smuggle(20);
    smuggle(21);
    smuggle(22);
    smuggle(23);
    write_text(temporary.root() / "v1" / ".bytes", note);
    static int next = 2;
    put(cache, next++);
    CHECK(bytes_of(cache) <= cache.limit());
    CHECK(kept(cache).back() < 20);
  }
}

TEST_CASE("a use is noted once an hour, and a time to come is put right") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  put(cache, 0);
  const auto meta = folder_of(cache, 0) / "meta.json";
  const auto written = fs::last_write_time(meta) - 20min;
  fs::last_write_time(meta, written);
  REQUIRE(cache.find(key_of(0)).has_value());
  CHECK(fs::last_write_time(meta) == written);
  for (const auto age : {2h, 1000h, -5h}) {
    set_age(cache, 0, age);
    (void)cache.list();  // looking is no use
    CHECK(age_of(cache, 0) - age < 1min);
    CHECK(age_of(cache, 0) - age > -1min);
    REQUIRE(cache.find(key_of(0)).has_value());
    CHECK(age_of(cache, 0) < 1min);
    CHECK(age_of(cache, 0) > -1min);
  }
}

TEST_CASE("a kernel that somebody is making or replacing is not evicted") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  for (int i = 0; i < 3; ++i) put(cache, i);
  const fs::path folder = folder_of(cache, 1);
  const fs::path unfinished = folder.parent_path() / ("." + folder.filename().string() + ".tmp-abcdef");
  fs::create_directory(unfinished);
  {
    const auto lock = FileLock::acquire(folder.parent_path() / ("." + folder.filename().string() + ".lock"), 0);
    REQUIRE(lock.has_value());
    const Pruned pruned = cache.prune(0);
    CHECK(pruned.kernels == 2);
    CHECK(kept(cache) == Numbers{1});
    CHECK(pruned.bytes_left == bytes_of(cache));
    CHECK(fs::exists(unfinished));
  }
  CHECK(cache.prune(0).kernels == 1);
  CHECK(names_in(temporary.root()).empty());
}

TEST_CASE("pruning by hand goes to the byte, and takes what dead builders left") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  CHECK(cache.prune(0).kernels == 0);  // nothing there yet, and nothing made
  CHECK_FALSE(fs::exists(temporary.root()));
  const long long each = entry_bytes();
  for (int i = 0; i < 4; ++i) put(cache, i);
  for (int i = 0; i < 4; ++i) set_age(cache, i, std::chrono::hours(10 - i));
  const fs::path arch = temporary.root() / "v1" / "sm_90";
  write_text(arch / ("." + folder_of(cache, 3).filename().string() + ".lock"), "");
  fs::create_directory(arch / (".gone-" + key.hash + ".tmp-abcdef"));
  const long long before = bytes_of(cache);
  CHECK(cache.prune(before).kernels == 0);
  CHECK(names_in(temporary.root()).size() == 4);
  const Pruned pruned = cache.prune(before - 1);
  CHECK(pruned.kernels == 1);
  CHECK(pruned.bytes == each);
  CHECK(pruned.bytes_left == before - each);
  CHECK(kept(cache) == Numbers{1, 2, 3});
}
