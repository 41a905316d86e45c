// What lies in the cache is executed: only this user may have written it.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/cache_bench.hpp"

using namespace attune;
using namespace attune::cache_tests;

namespace {

mode_t mode_of(const fs::path& path) {
  struct stat status = {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

void set_mode(const fs::path& path, mode_t mode) { REQUIRE(::chmod(path.c_str(), mode) == 0); }

/// Asks for the kernel three times; how often it was built.
int builds_of_three(const Cache& cache) {
  int built = 0;
  for (int i = 0; i < 3; ++i) {
    const Compiled got = cache.find_or_build(key, source, [&] {
      ++built;
      return kernel;
    });
    CHECK(got.image == kernel.image);
  }
  return built;
}

}  // namespace

TEST_CASE("folders and files are made for their owner alone") {
  TemporaryCache temporary;
  const mode_t before = ::umask(0);
  const Cache cache = temporary.open(1 << 20);
  cache.find_or_build(key, source, [] { return kernel; });
  ::umask(before);
  int seen = 0;
  CHECK(mode_of(temporary.root()) == 0700);
  for (const auto& entry : fs::recursive_directory_iterator(temporary.root())) {
    CAPTURE(entry.path());
    CHECK(mode_of(entry.path()) == (entry.is_directory() ? 0700 : 0600));
    ++seen;
  }
  CHECK(seen == 7);  // v1, its note, sm_90, the entry and its three files
}

TEST_CASE("a folder that others may write to is not used, and that is said once") {
  for (const mode_t mode : {0777, 0775, 01777, 0702}) {
    for (const char* part : {"", "v1", "v1/sm_90"}) {
      CAPTURE(mode);
      CAPTURE(part);
      TemporaryCache temporary;
      temporary.open().find_or_build(key, source, [] { return kernel; });
      const fs::path folder = temporary.root() / part;
      set_mode(folder, mode);
      const Cache cache = temporary.open();
      CHECK_FALSE(cache.find(key).has_value());
      CHECK(builds_of_three(cache) == 3);
      REQUIRE(temporary.log().size() == 1);
      CHECK(temporary.log()[0].find("may be written by others") != std::string::npos);
      CHECK(temporary.log()[0].find(temporary.root().string()) != std::string::npos);
      set_mode(folder, 0755);  // read by others is as it should be
      CHECK(builds_of_three(temporary.open()) == 0);
    }
  }
}

TEST_CASE("a refused folder is neither listed nor cleared") {
  TemporaryCache temporary;
  temporary.open().find_or_build(key, source, [] { return kernel; });
  set_mode(temporary.root(), 0777);
  const Cache cache = temporary.open();
  CHECK_FALSE(cache.refusal().empty());
  CHECK(cache.list().empty());
  CHECK(cache.clear() == 0);
  CHECK(cache.prune(0).kernels == 0);
  set_mode(temporary.root(), 0700);
  CHECK(cache.refusal().empty());
  CHECK(cache.list().size() == 1);
}

TEST_CASE("an entry that others may have altered is dropped and rebuilt") {
  for (const char* part : {"", "kernel.cubin", "kernel.cu", "meta.json"}) {
    CAPTURE(part);
    TemporaryCache temporary;
    const Cache cache = temporary.open();
    cache.find_or_build(key, source, [] { return kernel; });
    set_mode(only_entry(cache) / part, 0766);
    CHECK_FALSE(cache.list().front().valid);
    CHECK(builds_of_three(cache) == 1);
    CHECK(temporary.log().size() == 1);
    CHECK(cache.list().front().valid);
  }
}

TEST_CASE("the root may be a link: what it leads to counts") {
  TemporaryCache temporary;
  const fs::path real = temporary.root().parent_path() / "real";
  fs::create_directory(real);
  set_mode(real, 0755);
  fs::create_directory_symlink(real, temporary.root());
  CHECK(builds_of_three(temporary.open()) == 1);
  CHECK(fs::exists(real / "v1"));
  set_mode(real, 0777);
  CHECK(builds_of_three(temporary.open()) == 3);
  CHECK(temporary.log().size() == 1);
}

TEST_CASE("links inside an entry are not followed") {
  TemporaryCache temporary;
  const Cache cache = temporary.open();
  cache.find_or_build(key, source, [] { return kernel; });
  const fs::path image = only_entry(cache) / "kernel.cubin";
  const fs::path elsewhere = temporary.root().parent_path() / "elsewhere";
  fs::rename(image, elsewhere);
  fs::create_symlink(elsewhere, image);
  CHECK_FALSE(cache.find(key).has_value());
  CHECK(read_text(elsewhere) == kernel.image);
}

TEST_CASE("a folder of another user is not used") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can give a folder away");
    return;
  }
  constexpr uid_t nobody = 65534;
  for (const char* part : {"", "v1", "v1/sm_90"}) {
    CAPTURE(part);
    TemporaryCache temporary;
    temporary.open().find_or_build(key, source, [] { return kernel; });
    REQUIRE(::chown((temporary.root() / part).c_str(), nobody, nobody) == 0);
    CHECK(builds_of_three(temporary.open()) == 3);
    REQUIRE(temporary.log().size() == 1);
    CHECK(temporary.log()[0].find("belongs to user 65534") != std::string::npos);
  }
}
