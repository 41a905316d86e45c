// Where what is made goes: files, links to them, and what is no file at all.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "generator/files.hpp"
#include "runtime/base/files.hpp"
#include "runtime/record/record.hpp"

using namespace attune;
namespace fs = std::filesystem;

namespace {

/// What a folder holds, hidden or not.
std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("an output goes through links to the file that is meant, and the links stay") {
  const ScratchFolder folder;
  fs::create_directory(folder.path() / "far");
  const fs::path file = folder.path() / "far" / "file";
  const fs::path link = folder.path() / "link";
  fs::create_symlink("far/second", link);
  fs::create_symlink(file, folder.path() / "far" / "second");
  write_bytes(link, "new");  // where they lead nothing is yet
  CHECK(read_bytes(file) == "new");
  fs::permissions(file, fs::perms::owner_all);
  write_bytes(link, "newer");
  CHECK(read_bytes(file) == "newer");
  CHECK(fs::status(file).permissions() == fs::perms::owner_all);
  CHECK(fs::is_symlink(link));
  CHECK(entries(folder.path()) == 2);
  CHECK(entries(folder.path() / "far") == 2);
}

TEST_CASE("an output that is no regular file is written into, never replaced") {
  const ScratchFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR) == 0);
  const FileDescriptor reader(::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  write_if_changed(pipe, "text");
  char got[8] = {};
  CHECK(::read(reader.get(), got, sizeof got) == 4);
  CHECK(std::string(got) == "text");
  CHECK(fs::is_fifo(pipe));
  // A link to the device and not the device: the old way destroys what it is given.
  const fs::path link = folder.path() / "null";
  fs::create_symlink("/dev/null", link);
  write_bytes(link, "text");
  CHECK(fs::is_symlink(link));
  CHECK(entries(folder.path()) == 2);
}

TEST_CASE("an output that cannot be written is refused and left as it is") {
  const ScratchFolder folder;
  const fs::path inner = folder.path() / "inner";
  fs::create_directory(inner);
  CHECK_THROWS_AS(write_bytes(inner, "text"), fs::filesystem_error);
  const fs::path loop = folder.path() / "loop";
  fs::create_symlink("loop", loop);
  CHECK_THROWS_AS(write_bytes(loop, "text"), fs::filesystem_error);
  const fs::path socket = folder.path() / "socket";
  const FileDescriptor bound(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  REQUIRE(socket.string().size() < sizeof address.sun_path);
  std::ranges::copy(socket.string(), std::begin(address.sun_path));
  REQUIRE(::bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  CHECK_THROWS_AS(write_bytes(socket, "text"), fs::filesystem_error);
  CHECK(fs::is_socket(socket));
  CHECK_THROWS_AS(write_bytes(folder.path() / "none" / "file", "text"), fs::filesystem_error);
  CHECK(entries(folder.path()) == 3);
}

TEST_CASE("an output is never written through a link that waits under the name of the unfinished file") {
  const ScratchFolder folder;
  const fs::path victim = folder.path() / "victim";
  write_file(victim, "precious");
  const fs::path file = folder.path() / "file";
  fs::create_symlink(victim, folder.path() / "file.tmp");
  write_bytes(file, "text");
  CHECK(read_bytes(victim) == "precious");
  CHECK(fs::is_regular_file(fs::symlink_status(file)));
}

TEST_CASE("a lock is not made where a link leads") {
  const ScratchFolder folder;
  fs::create_symlink("elsewhere", folder.path() / "lock");
  CHECK_THROWS_AS(FileLock::acquire(folder.path() / "lock", 0), fs::filesystem_error);
  CHECK_FALSE(fs::exists(folder.path() / "elsewhere"));
}

TEST_CASE("a record that is a pipe without a reader stops no caller") {
  const ScratchFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), S_IRUSR | S_IWUSR) == 0);
  int lines = 0;
  const Recorder recorder(pipe, [&](std::string_view) { ++lines; });
  CHECK(lines == 1);
}
