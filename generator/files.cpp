#include "generator/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

namespace attune {
namespace {

using std::filesystem::path;

std::set<path> emitted_sources(const path& folder) {
  std::set<path> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".cu") continue;
    const std::string banner = fmt::format("// {}\n", entry.path().stem().string());
    if (read_bytes(entry.path()).starts_with(banner)) files.insert(entry.path());
  }
  return files;
}

[[noreturn]] void fail(const path& file, int error) {
  throw std::filesystem::filesystem_error("cannot write", file, std::error_code(error, std::generic_category()));
}

/// Writes all of it and closes; the error, 0 for none.
int write_and_close(int fd, std::string_view bytes) {
  int error = 0;
  while (!bytes.empty() && error == 0) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  return error;
}

/// Where a file's links lead in the end; what is there need not exist.
path followed(const path& file) {
  constexpr int most_links = 40;
  path place = file;
  for (int links = 0; std::filesystem::is_symlink(place); ++links) {
    if (links == most_links) fail(file, ELOOP);
    place = place.parent_path() / std::filesystem::read_symlink(place);  // an absolute one stands for itself
  }
  return place;
}

/// A new file in this folder under a name that nobody can know before, so that nobody can have put a link there.
int open_beside(const path& folder, path& beside) {
  std::random_device random;
  int fd = -1;
  do {
    beside = folder / fmt::format(".attune-{:08x}{:08x}.tmp", random(), random());
    fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  } while (fd < 0 && (errno == EEXIST || errno == EINTR));
  return fd;
}

/// Writes into what has no contents to replace, as a shell's redirection would.
void write_into(const path& file, std::string_view bytes) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  const int error = fd < 0 ? errno : write_and_close(fd, bytes);
  if (error != 0) fail(file, error);
}

}  // namespace

std::string read_bytes(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

Result<std::string> read_named(const path& file, std::size_t most, std::string_view wanted) {
  const auto problem = [&](std::string what, std::string_view fix) {
    return Result<std::string>{.value = {}, .problems = {{{file.string(), 0, 0}, std::move(what), std::string(fix)}}};
  };
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) return problem("there is no such file", wanted);
  if (std::filesystem::is_directory(status)) return problem("this is a folder", wanted);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return problem("the file cannot be read", "check its permissions");
  std::string text(most + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return problem("reading the file failed", "check the disk");
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return {.value = std::move(text), .problems = {}};
}

void write_bytes(const path& file, std::string_view bytes) {
  struct stat there = {};
  const bool exists = ::stat(file.c_str(), &there) == 0;
  if (exists && (S_ISCHR(there.st_mode) || S_ISFIFO(there.st_mode))) return write_into(file, bytes);
  if (exists && S_ISDIR(there.st_mode)) fail(file, EISDIR);
  if (exists && !S_ISREG(there.st_mode)) fail(file, ENOTSUP);  // a socket, or a disk that nobody means
  if (exists && ::access(file.c_str(), W_OK) != 0) fail(file, errno);
  const path place = followed(file);
  path beside;
  const int fd = open_beside(place.parent_path(), beside);
  if (fd < 0) fail(file, errno);
  constexpr mode_t permissions = 0777;
  if (exists) ::fchmod(fd, there.st_mode & permissions);  // where that is refused it keeps a new file's
  int error = write_and_close(fd, bytes);
  if (error == 0 && ::rename(beside.c_str(), place.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(beside.c_str());
  fail(file, error);
}

void write_if_changed(const path& file, const std::string& bytes) {
  if (!std::filesystem::is_regular_file(file) || read_bytes(file) != bytes) write_bytes(file, bytes);
}

std::set<path> leftovers(const path& folder, std::span<const Source> sources) {
  std::set<path> files = emitted_sources(folder);
  for (const Source& source : sources) files.erase(folder / (source.name + ".cu"));
  return files;
}

void write_sources(const path& folder, std::span<const Source> sources) {
  std::filesystem::create_directories(folder);
  for (const path& file : leftovers(folder, sources)) std::filesystem::remove(file);
  for (const Source& source : sources) write_if_changed(folder / (source.name + ".cu"), source.text);
}

}  // namespace attune
