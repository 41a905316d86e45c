#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "generator/expression/pool.hpp"
#include "runtime/base/error.hpp"
#include "tests/unit/cache_bench.hpp"
#include "tests/unit/environment.hpp"

using namespace attune;
using testing::EnvironmentVariable;
using namespace attune::cache_tests;

TEST_CASE("a kernel is built once, then found whole") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  CHECK_FALSE(cache.find(key).has_value());
  int built = 0;
  const auto build = [&] {
    ++built;
    return kernel;
  };
  CHECK(cache.find_or_build(key, source, build).image == kernel.image);
  CHECK(cache.find_or_build(key, source, build).image == kernel.image);
  CHECK(built == 1);

  const auto found = temporary.open().find(key);
  REQUIRE(found.has_value());
  CHECK(found->image == kernel.image);
  CHECK(found->usage.registers == 168);
  CHECK(found->usage.static_shared_bytes == 16);
  CHECK(found->usage.stack_bytes == 8);
  CHECK(found->usage.spill_stores == 4);
  CHECK(found->usage.spill_loads == 2);
  CHECK(found->usage.code_bytes == 4096);
  CHECK(found->seconds == 0);  // nothing was compiled

  const auto entries = cache.list();
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].valid);
  CHECK(entries[0].name == "prefill_test");
  CHECK(entries[0].arch == "sm_90");
  CHECK(entries[0].hash == key.hash);
  CHECK(entries[0].bytes > 50'000);
  CHECK(read_text(entries[0].folder / "kernel.cu") == source.text);
  CHECK(names_in(temporary.root()).size() == 1);  // no lock, no unfinished folder left
  CHECK(temporary.log().empty());
}

TEST_CASE("the key changes with each of its ingredients") {
  CHECK(key.name == "prefill_test");
  CHECK(key.arch == "sm_90");
  CHECK(key.hash.size() == 32);
  CHECK(cache_key(source, "sm_90", {}, "13.0").hash == key.hash);
  CHECK(cache_key(source_of(source.text + " "), "sm_90", {}, "13.0").hash != key.hash);
  CHECK(cache_key(source, "sm_80", {}, "13.0").hash != key.hash);
  CHECK(cache_key(source, "sm_90", {}, "13.1").hash != key.hash);
  Source renamed = source;
  renamed.name = "prefill_tesu";
  CHECK(cache_key(renamed, "sm_90", {}, "13.0").hash != key.hash);
  // Moving a byte from one ingredient to its neighbour is a change too.
  Source moved = source;
  moved.text += 'p';
  moved.name.erase(0, 1);
  CHECK(cache_key(moved, "sm_90", {}, "13.0").hash != key.hash);
}

TEST_CASE("NVRTC's kernels are found by what their source follows from: family, values, the texts of expressions") {
  const auto variant_of = [](const char* mask) {
    Variant variant = families()[prefill_sm90].defaults;
    variant.mask = *expression::number_of_text(mask, expression::Use::mask);
    return variant;
  };
  const auto hash_of = [](const Variant& variant) { return cache_key(variant, 90, "13.0").hash; };
  const Variant variant = variant_of("k <= p + 5");
  CHECK(cache_key(variant, 90, "13.0").name == variant.name());
  CHECK(hash_of(variant) == hash_of(variant_of("k<=p+5")));
  CHECK(hash_of(variant) != hash_of(variant_of("k <= p + 6")));
  CHECK(hash_of(variant) != cache_key(variant, 100, "13.0").hash);
  CHECK(hash_of(variant) != cache_key(variant, 90, "13.1").hash);
  const std::string all = followed_from(variant, "a digest");
  CHECK(all == followed_from(variant_of("k<=p+5"), "a digest"));
  CHECK(all != followed_from(variant_of("k <= p + 6"), "a digest"));
  CHECK(all != followed_from(variant, "another digest"));
  for (const std::string_view key : family_of(variant).keys) {
    const Field& field = *find_field(key);
    if (field.kind == FieldKind::expression) continue;
    CAPTURE(key);
    Variant other = variant;
    int& value = other.*field.member;
    value = field.kind == FieldKind::boolean ? 1 - value : value + 1;
    CHECK(followed_from(other, "a digest") != all);
  }
}

TEST_CASE("a kernel for the emulator is kept beside those for GPUs, as kernel.so") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  const std::vector<std::string> options{"-O2", "-fPIC"};
  const CacheKey host = cache_key(source, emulator_arch, options, "g++ 12");
  CHECK(host.arch == "emulator");
  CHECK(host.hash != key.hash);
  CHECK(cache_key(source, emulator_arch, {"-O2", "-fPI", "C"}, "g++ 12").hash != host.hash);
  CHECK(cache_key(source, emulator_arch, {"-O3", "-fPIC"}, "g++ 12").hash != host.hash);
  CHECK(cache_key(source, emulator_arch, options, "g++ 13").hash != host.hash);
  CHECK(cache.find_or_build(host, source, [] { return kernel; }).image == kernel.image);
  CHECK(read_text(only_entry(cache) / "kernel.so") == kernel.image);
  const auto found = cache.find(host);
  REQUIRE(found.has_value());
  CHECK(found->image == kernel.image);
  CHECK_FALSE(cache.find(key).has_value());
  fs::resize_file(only_entry(cache) / "kernel.so", 7);
  CHECK_FALSE(cache.list().front().valid);
  CHECK_FALSE(cache.find(host).has_value());
}

TEST_CASE("a damaged entry is dropped, rebuilt, and said once") {
  const auto damage = [](const std::string& what, const fs::path& folder) {
    if (what == "altered cubin" || what == "altered source") {
      const fs::path path = folder / (what == "altered cubin" ? "kernel.cubin" : "kernel.cu");
      std::string bytes = read_text(path);
      bytes[bytes.size() / 2] ^= 1;
      write_text(path, bytes);
    } else if (what == "cut cubin") {
      fs::resize_file(folder / "kernel.cubin", 1000);
    } else if (what == "empty cubin") {
      fs::resize_file(folder / "kernel.cubin", 0);
    } else if (what == "missing cubin") {
      fs::remove(folder / "kernel.cubin");
    } else if (what == "cubin is a folder") {
      fs::remove(folder / "kernel.cubin");
      fs::create_directory(folder / "kernel.cubin");
    } else if (what == "cubin is a pipe") {
      fs::remove(folder / "kernel.cubin");
      REQUIRE(::mkfifo((folder / "kernel.cubin").c_str(), 0644) == 0);
    } else if (what == "missing meta") {
      fs::remove(folder / "meta.json");
    } else if (what == "cut meta") {
      fs::resize_file(folder / "meta.json", 40);
    } else if (what == "wrong types in meta") {
      write_text(folder / "meta.json", R"({"format": "1", "name": 3, "cubin": []})");
    } else if (what == "meta of another kernel") {
      std::string text = read_text(folder / "meta.json");
      text.replace(text.find("prefill_test"), 12, "prefill_best");
      write_text(folder / "meta.json", text);
    } else if (what == "deeply nested meta") {
      write_text(folder / "meta.json", std::string(60'000, '['));
    } else if (what == "entry is a file") {
      fs::remove_all(folder);
      write_text(folder, "not a folder");
    } else if (what == "entry is a dangling link") {
      fs::remove_all(folder);
      fs::create_symlink("nowhere", folder);
    }
  };
  for (const std::string what :
       {"altered cubin", "altered source", "cut cubin", "empty cubin", "missing cubin", "cubin is a folder",
        "cubin is a pipe", "missing meta", "cut meta", "wrong types in meta", "meta of another kernel",
        "deeply nested meta", "entry is a file", "entry is a dangling link"}) {
    CAPTURE(what);
    TemporaryCache temporary;
    const Cache cache = temporary.open();
    const auto build = [] { return kernel; };
    cache.find_or_build(key, source, build);
    damage(what, only_entry(cache));
    CHECK_FALSE(cache.list().front().valid);
    CHECK_FALSE(cache.list().front().problem.empty());

    int rebuilt = 0;
    const Compiled again = cache.find_or_build(key, source, [&] {
      ++rebuilt;
      return kernel;
    });
    CHECK(rebuilt == 1);
    CHECK(again.image == kernel.image);
    CHECK(temporary.log().size() == 1);
    CHECK(cache.list().front().valid);
    CHECK(cache.find(key).has_value());
    CHECK(temporary.log().size() == 1);
    CHECK(names_in(temporary.root()).size() == 1);
  }
}

TEST_CASE("find alone drops a damaged entry too") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  cache.find_or_build(key, source, [] { return kernel; });
  fs::resize_file(only_entry(cache) / "kernel.cubin", 7);
  CHECK_FALSE(cache.find(key).has_value());
  CHECK(temporary.log().size() == 1);
  CHECK(cache.list().empty());
  CHECK_FALSE(cache.find(key).has_value());
  CHECK(temporary.log().size() == 1);
}

TEST_CASE("what is not of the cache is left alone") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  cache.find_or_build(key, source, [] { return kernel; });
  const fs::path arch = temporary.root() / "v1" / "sm_90";
  write_text(arch / "README", "mine");
  fs::create_directories(arch / "somebody-elses");
  fs::create_directories(arch / ".git");
  write_text(temporary.root() / "v1" / "notes.txt", "mine");
  fs::create_directories(temporary.root() / "v0" / "sm_90" / ("old-" + key.hash));
  CHECK(cache.list().size() == 1);
  CHECK(cache.clear() == 1);
  CHECK(cache.list().empty());
  CHECK(fs::exists(arch / "README"));
  CHECK(fs::exists(arch / "somebody-elses"));
  CHECK(fs::exists(arch / ".git"));
  CHECK(fs::exists(temporary.root() / "v1" / "notes.txt"));
  CHECK(fs::exists(temporary.root() / "v0" / "sm_90" / ("old-" + key.hash)));
}

TEST_CASE("what a builder that died left behind goes with the next build or with clear") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  const fs::path arch = temporary.root() / "v1" / "sm_90";
  const fs::path left = arch / (".prefill_test-" + key.hash + ".tmp-abcdef");
  fs::create_directories(left);
  write_text(left / "kernel.cu", "half a so");
  write_text(arch / (".prefill_test-" + key.hash + ".lock"), "");
  CHECK(cache.list().empty());
  CHECK(cache.find_or_build(key, source, [] { return kernel; }).image == kernel.image);
  CHECK_FALSE(fs::exists(left));
  CHECK(names_in(temporary.root()).size() == 1);

  fs::create_directories(left);
  CHECK(cache.clear() == 1);
  CHECK(names_in(temporary.root()).empty());
}

TEST_CASE("names that no path may hold are made safe") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  Source odd = source;
  odd.name = "../../evil/" + std::string(400, 'x') + "\n";
  const CacheKey odd_key = cache_key(odd, "sm_90", {}, "13.0");
  CHECK(cache.find_or_build(odd_key, odd, [] { return kernel; }).image == kernel.image);
  CHECK(cache.find(odd_key).has_value());
  REQUIRE(cache.list().size() == 1);
  CHECK(cache.list().front().valid);
  CHECK(names_in(temporary.root()).size() == 1);
}

TEST_CASE("a folder that cannot be written only costs the caching") {
  TemporaryCache temporary;
  write_text(temporary.root(), "a file where the cache's root should be");
  std::vector<std::string> log;
  for (const fs::path& root : {temporary.root(), temporary.root() / "below", fs::path("/proc/attune"), fs::path()}) {
    CAPTURE(root);
    log.clear();
    const Cache cache(root, [&](const std::string& line) { log.push_back(line); });
    int built = 0;
    for (int i = 0; i < 3; ++i) {
      CHECK(cache
                .find_or_build(key, source,
                               [&] {
                                 ++built;
                                 return kernel;
                               })
                .image == kernel.image);
    }
    CHECK(built == 3);
    CHECK(log.size() == 1);
    CHECK_FALSE(cache.find(key).has_value());
    CHECK(cache.list().empty());
    CHECK(cache.clear() == 0);
  }
}

TEST_CASE("a build that fails leaves nothing and frees the lock") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  const auto fail = []() -> Compiled { throw Error(ATTUNE_COMPILE_ERROR, "no"); };
  CHECK_THROWS_AS(cache.find_or_build(key, source, fail), Error);
  CHECK(names_in(temporary.root()).empty());
  CHECK(cache.find_or_build(key, source, [] { return kernel; }).image == kernel.image);
}

TEST_CASE("threads that ask for one kernel build it once") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  std::atomic<int> built = 0;
  std::atomic<int> right = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Compiled got = cache.find_or_build(key, source, [&] {
        ++built;
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        return kernel;
      });
      right += got.image == kernel.image ? 1 : 0;
    });
  }
  threads.clear();
  CHECK(built == 1);
  CHECK(right == 8);
  CHECK(names_in(temporary.root()).size() == 1);
}

TEST_CASE("processes that ask for one kernel build it once") {
  constexpr int processes = 6;
  TemporaryCache temporary;
  const fs::path tally = temporary.root().parent_path() / "tally";
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      bool right = false;
      {
        const Cache cache(temporary.root(), {});
        const Compiled got = cache.find_or_build(key, source, [&] {
          std::ofstream(tally, std::ios::app) << 'b' << std::flush;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          return kernel;
        });
        right = got.image == kernel.image;
      }
      ::_exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  CHECK(read_text(tally) == "b");
  const Cache cache = temporary.open();
  REQUIRE(cache.list().size() == 1);
  CHECK(cache.list().front().valid);
  CHECK(names_in(temporary.root()).size() == 1);
}

TEST_CASE("a builder that is killed does not stop the next") {
  TemporaryCache temporary;
  const fs::path started = temporary.root().parent_path() / "started";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Cache cache(temporary.root(), {});
    cache.find_or_build(key, source, [&] {
      write_text(started, "x");
      std::this_thread::sleep_for(std::chrono::minutes(1));
      return kernel;
    });
    ::_exit(0);
  }
  while (!fs::exists(started)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  const auto start = std::chrono::steady_clock::now();
  CHECK(temporary.open().find_or_build(key, source, [] { return kernel; }).image == kernel.image);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  CHECK(names_in(temporary.root()).size() == 1);
}

TEST_CASE("clearing and building at once keep every reader right") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        while (!stop) wrong += cache.find_or_build(key, source, [] { return kernel; }).image == kernel.image ? 0 : 1;
      });
    }
    for (int i = 0; i < 50; ++i) {
      cache.clear();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    stop = true;
  }
  CHECK(wrong == 0);
}

TEST_CASE("a lock that stays held is given up on") {
  TemporaryCache temporary;
  fs::create_directories(temporary.root());
  const fs::path path = temporary.root() / "lock";
  auto first = FileLock::acquire(path, 0);
  REQUIRE(first.has_value());
  CHECK_FALSE(FileLock::acquire(path, 0).has_value());
  CHECK_FALSE(FileLock::acquire(path, 0.05).has_value());
  first.reset();
  CHECK_FALSE(fs::exists(path));
  CHECK(FileLock::acquire(path, 0).has_value());
}

TEST_CASE("a lock file that is removed when its holder is done still has one holder at a time") {
  TemporaryCache temporary;
  fs::create_directories(temporary.root());
  const fs::path path = temporary.root() / "lock";
  std::atomic<int> inside = 0;
  std::atomic<int> crowded = 0;
  std::atomic<int> taken = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] {
        for (int repeat = 0; repeat < 3000; ++repeat) {
          const auto lock = FileLock::acquire(path, 0);
          if (!lock) continue;
          ++taken;
          if (++inside != 1) ++crowded;
          // Some leave at once, so that others meet the removal; some stay, so that a second holder shows.
          if ((repeat + i) % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
          --inside;
        }
      });
    }
  }
  CHECK(taken > 0);
  CHECK(crowded == 0);
  CHECK_FALSE(fs::exists(path));
}

TEST_CASE("the root follows the environment") {
  const EnvironmentVariable own("ATTUNE_CACHE_DIR", "/a");
  const EnvironmentVariable xdg("XDG_CACHE_HOME", "/x");
  const EnvironmentVariable home("HOME", "/h");
  CHECK(default_cache_root() == "/a");
  own.set({});
  CHECK(default_cache_root() == "/x/attune");
  xdg.set("relative");
  CHECK(default_cache_root() == "/h/.cache/attune");
  xdg.set({});
  CHECK(default_cache_root() == "/h/.cache/attune");
  home.set({});
  CHECK(default_cache_root().empty());
}
