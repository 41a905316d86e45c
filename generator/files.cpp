#include "generator/files.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <stdexcept>

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

}  // namespace

std::string read_bytes(const path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write_bytes(const path& file, const std::string& bytes) {
  path beside = file;
  beside += ".tmp";
  std::ofstream stream(beside, std::ios::binary);
  stream << bytes;
  stream.close();
  if (!stream) throw std::runtime_error(fmt::format("{}: cannot be written", beside.string()));
  std::filesystem::rename(beside, file);
}

void write_if_changed(const path& file, const std::string& bytes) {
  if (!std::filesystem::exists(file) || read_bytes(file) != bytes) write_bytes(file, bytes);
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
