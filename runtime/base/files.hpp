// The file operations that the cache is made of: whole reads, durable writes, folders of one's own, a lock between
// processes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace attune {

/// A file descriptor that is closed when it goes.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  int release();

 private:
  int fd_;
};

/// The bytes of a regular file of at most `limit` bytes; nothing when it is anything else.
std::optional<std::string> read_file(const std::filesystem::path& path, std::size_t limit);

/// The same for a file that is open.
std::optional<std::string> read_file(const FileDescriptor& file, std::size_t limit);

/// Opens a folder, through links; not open (and errno set) where there is none.
FileDescriptor open_folder(const std::filesystem::path& path);

/// Opens a folder below an open one, through links or only if it is none itself.
enum class Links { follow, refuse };
FileDescriptor open_folder(const FileDescriptor& parent, const std::string& name, Links links);

/// Opens a file in an open folder for reading, if it is no link. A pipe does not make its opener wait.
FileDescriptor open_file(const FileDescriptor& parent, const std::string& name);

/// Who else than root and the effective user of this process may have written what is open, in words; empty for nobody.
std::string other_writers(const FileDescriptor& fd);

/// Makes a folder, and those above it that are missing, for this user alone (0700). Throws
/// std::filesystem::filesystem_error.
void make_private_folders(const std::filesystem::path& path);

/// Writes a new file for this user alone (0600). Throws std::filesystem::filesystem_error.
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// The same, and waits until it is on the disk.
void write_file_durably(const std::filesystem::path& path, std::string_view bytes);

/// Waits until a folder's entries are on the disk; a file system that cannot is not an error.
void sync_folder(const std::filesystem::path& path);

/// A new, empty folder for this user alone (0700) whose name starts with `prefix`. Throws
/// std::filesystem::filesystem_error.
std::filesystem::path make_unique_folder(const std::filesystem::path& prefix);

/// A new folder for this user alone that goes with everything in it; what a process that was killed left behind under
/// the same prefix goes when the next one is made.
class ScratchFolder {
 public:
  /// In $TMPDIR or /tmp. Throws std::filesystem::filesystem_error.
  explicit ScratchFolder(std::string_view prefix = "attune-scratch-");
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;
};

/// Holds a lock file exclusively, between threads and processes alike. The kernel of the operating system
/// frees it when its holder dies; the file is removed when its holder is done, and a waiter that then has the lock of
/// a file without a name, or with another one after it, asks again.
class FileLock {
 public:
  /// Takes the lock, waiting at most so long; nothing if another still holds it then. Throws
  /// std::filesystem::filesystem_error where no lock can be made (no such folder, read-only, no flock).
  static std::optional<FileLock> acquire(const std::filesystem::path& path, double seconds);

  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) = delete;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  FileLock(std::filesystem::path path, FileDescriptor fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  FileDescriptor fd_;
};

}  // namespace attune
