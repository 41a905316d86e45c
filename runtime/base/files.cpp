#include "runtime/base/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/base/environment.hpp"

namespace attune {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path) {
  throw std::filesystem::filesystem_error(what, path, std::error_code(errno, std::generic_category()));
}

/// `folder` is AT_FDCWD for a path that does not start at an open folder.
FileDescriptor open_at(int folder, const char* path, int flags, mode_t mode = 0) {
  int fd = -1;
  do {
    fd = ::openat(folder, path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return FileDescriptor(fd);
}

FileDescriptor open_path(const std::filesystem::path& path, int flags, mode_t mode = 0) {
  return open_at(AT_FDCWD, path.c_str(), flags, mode);
}

FileDescriptor write_new(const std::filesystem::path& path, std::string_view bytes) {
  FileDescriptor fd = open_path(path, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (!fd.open()) fail("cannot create", path);
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot write", path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return fd;
}

void close_file(FileDescriptor fd, const std::filesystem::path& path) {
  if (::close(fd.release()) != 0) fail("cannot close", path);
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
  return read_file(open_path(path, O_RDONLY | O_NONBLOCK), limit);
}

std::optional<std::string> read_file(const FileDescriptor& fd, std::size_t limit) {
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

FileDescriptor open_folder(const std::filesystem::path& path) { return open_path(path, O_RDONLY | O_DIRECTORY); }

FileDescriptor open_folder(const FileDescriptor& parent, const std::string& name, Links links) {
  const int flags = O_RDONLY | O_DIRECTORY | (links == Links::refuse ? O_NOFOLLOW : 0);
  return open_at(parent.get(), name.c_str(), flags);
}

FileDescriptor open_file(const FileDescriptor& parent, const std::string& name) {
  return open_at(parent.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
}

std::string other_writers(const FileDescriptor& fd) {
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) return "cannot be looked at";
  if (status.st_uid != ::geteuid() && status.st_uid != 0) return fmt::format("belongs to user {}", status.st_uid);
  constexpr mode_t permissions = 07777;
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fmt::format("may be written by others than its owner (mode {:04o})", status.st_mode & permissions);
}

void make_private_folders(const std::filesystem::path& path) {
  if (::mkdir(path.c_str(), S_IRWXU) == 0) return;
  if (errno == ENOENT && path.has_parent_path() && path.parent_path() != path) {
    make_private_folders(path.parent_path());
    if (::mkdir(path.c_str(), S_IRWXU) == 0) return;
  }
  const int error = errno;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return;  // there already, or made by another meanwhile
  errno = error;
  fail("cannot create a folder", path);
}

void write_file(const std::filesystem::path& path, std::string_view bytes) { close_file(write_new(path, bytes), path); }

void write_file_durably(const std::filesystem::path& path, std::string_view bytes) {
  FileDescriptor fd = write_new(path, bytes);
  if (::fsync(fd.get()) != 0) fail("cannot sync", path);
  close_file(std::move(fd), path);
}

void sync_folder(const std::filesystem::path& path) {
  const FileDescriptor fd = open_folder(path);
  if (fd.open()) ::fsync(fd.get());
}

namespace {

/// Where temporary files go; what is wrong with the variable is said in its name.
std::filesystem::path temporary_folder() {
  std::filesystem::path folder = environment("TMPDIR");
  if (folder.empty()) folder = "/tmp";
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return folder;
  throw std::filesystem::filesystem_error("TMPDIR names no folder", folder,
                                          error ? error : std::make_error_code(std::errc::not_a_directory));
}

/// Whether a name is this prefix and what mkdtemp appended to it.
bool is_unique_name(std::string_view name, std::string_view prefix) {
  constexpr std::size_t random_letters = 6;
  if (!name.starts_with(prefix) || name.size() != prefix.size() + random_letters) return false;
  return std::ranges::all_of(name.substr(prefix.size()),
                             [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

/// Removes scratch folders of this user that nobody holds: their processes were killed. A young one may be between its
/// making and its lock.
void sweep(const std::filesystem::path& folder, std::string_view prefix) {
  constexpr std::time_t young = 600;  // seconds
  std::error_code ignored;
  const FileDescriptor parent = open_folder(folder);
  std::filesystem::directory_iterator entry(folder, ignored);
  for (; entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename();
    if (!is_unique_name(name, prefix)) continue;
    const FileDescriptor own = open_folder(parent, name, Links::refuse);
    struct stat status = {};
    if (!own.open() || ::fstat(own.get(), &status) != 0 || status.st_uid != ::geteuid()) continue;
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0 || std::time(nullptr) - status.st_mtime < young) continue;
    if (::flock(own.get(), LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(entry->path(), ignored);
  }
}

}  // namespace

ScratchFolder::ScratchFolder(std::string_view prefix) {
  const std::filesystem::path folder = temporary_folder();
  sweep(folder, prefix);
  path_ = make_unique_folder(folder / prefix);
  // Held as long as this lives; the kernel of the operating system lets go where it is killed.
  lock_ = open_folder(path_);
  if (lock_.open()) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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
    // O_NOFOLLOW: its name is no secret, and a link put there would make a file wherever it leads.
    FileDescriptor fd = open_path(path, O_RDWR | O_CREAT | O_NOFOLLOW, S_IRUSR | S_IWUSR);
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
  // Removed while still held, so that nobody can take the old file for the lock; but not another's, who came where
  // somebody had removed ours by hand. Unlocked by name, not by close alone: a child forked meanwhile shares the
  // descriptor.
  if (still_named(path_, fd_.get())) ::unlink(path_.c_str());
  ::flock(fd_.get(), LOCK_UN);
}

}  // namespace attune
