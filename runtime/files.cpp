#include "runtime/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <system_error>
#include <thread>
#include <utility>

namespace attune {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::filesystem::filesystem_error(what, path, std::error_code(errno, std::generic_category()));
}

FileDescriptor open_file(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return FileDescriptor(fd);
}

/// Whether the path still names the file that is open: another holder may have removed it meanwhile.
bool still_named(const std::filesystem::path& path, int fd) {
  struct stat named = {};
  struct stat opened = {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
         named.st_ino == opened.st_ino;
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

std::optional<std::string> read_file(const std::filesystem::path& path, std::size_t limit) {
  // O_NONBLOCK: a pipe put in place of the file must not make its reader wait.
  const FileDescriptor fd = open_file(path, O_RDONLY | O_NONBLOCK);
  struct stat status = {};
  if (!fd.open() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  if (status.st_size < 0 || static_cast<std::size_t>(status.st_size) > limit) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(fd.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  bytes.resize(done);
  return bytes;
}

void write_file_durably(const std::filesystem::path& path, std::string_view bytes) {
  FileDescriptor fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (!fd.open()) fail("cannot create", path);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(fd.get()) != 0) fail("cannot sync", path);
  if (::close(fd.release()) != 0) fail("cannot close", path);
}

void sync_folder(const std::filesystem::path& path) {
  const FileDescriptor fd = open_file(path, O_RDONLY | O_DIRECTORY);
  if (fd.open()) ::fsync(fd.get());
}

std::filesystem::path make_unique_folder(const std::filesystem::path& prefix) {
  std::string name = prefix.string() + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) fail("cannot create a folder", prefix);
  return name;
}

std::optional<FileLock> FileLock::acquire(const std::filesystem::path& path, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    FileDescriptor fd = open_file(path, O_RDWR | O_CREAT, 0644);
    if (!fd.open()) fail("cannot open the lock", path);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
      if (still_named(path, fd.get())) return FileLock(path, std::move(fd));
      continue;  // its last holder removed it after we opened it: take the new one
    }
    if (errno != EWOULDBLOCK && errno != EINTR) fail("cannot lock", path);
    if (Clock::now() >= deadline) return std::nullopt;
    // Polling instead of a blocking flock, which a stopped holder would make endless.
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(20));
  }
}

FileLock::~FileLock() {
  if (!fd_.open()) return;
  // Removed while still held, so that nobody can take the old file for the lock. Unlocked by name, not by
  // close alone: a child forked meanwhile shares the descriptor.
  ::unlink(path_.c_str());
  ::flock(fd_.get(), LOCK_UN);
}

}  // namespace attune
