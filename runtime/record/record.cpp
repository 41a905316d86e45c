#include "runtime/record/record.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

#include "generator/json_fields.hpp"
#include "runtime/base/environment.hpp"
#include "runtime/base/files.hpp"
#include "runtime/operations/operations.hpp"
#include "runtime/record/record_fields.hpp"

namespace attune {
namespace {

constexpr mode_t readable_by_all = 0644;

std::filesystem::path expanded(const std::filesystem::path& path) {
  std::string text = path.string();
  const std::string id = std::to_string(::getpid());
  for (std::size_t at = text.find("%p"); at != std::string::npos; at = text.find("%p", at + id.size())) {
    text.replace(at, 2, id);
  }
  return std::filesystem::absolute(text);
}

// O_NONBLOCK: a pipe that nobody reads must not make the calls of a program wait.
int open_to_append(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, readable_by_all);
}

}  // namespace

RecordGroup group_of(const AnyProblem& problem) {
  return std::visit([](const auto& one) { return RecordGroup{with_rounded_sizes(one), one.ask()}; }, problem);
}

std::filesystem::path default_record_path() { return environment("ATTUNE_RECORD"); }

Recorder::Recorder(const std::filesystem::path& path, LineLog log) : path_(expanded(path)), log_(std::move(log)) {
  append("");
}

Recorder::~Recorder() { write_all(); }

void Recorder::write_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [group, entry] : met_) {
    if (entry.calls > entry.written) write(entry);
  }
}

void Recorder::note(const AnyProblem& problem, long long calls) {
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = met_.try_emplace(group_of(problem), Entry{.first = problem});
  Entry& entry = at->second;
  entry.calls += calls;
  if (is_new || (entry.calls > entry.written && entry.calls >= 2 * entry.written)) write(entry);
}

void Recorder::write(Entry& entry) {
  append(record_line({.problem = entry.first, .calls = entry.calls - entry.written}));
  entry.written = entry.calls;
}

// Opened each time, which is seldom: whoever moves the file away gets a new one.
void Recorder::append(std::string_view line) {
  if (broken_) return;
  const FileDescriptor file(open_to_append(path_));
  if (file.open() && ::write(file.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) return;
  broken_ = true;
  log_(fmt::format("calls are not recorded: {}: {}", path_.string(),
                   std::error_code(errno, std::generic_category()).message()));
}

long long added_calls(long long calls, long long more) {
  return more > std::numeric_limits<long long>::max() - calls ? std::numeric_limits<long long>::max() : calls + more;
}

std::unique_ptr<Recorder> open_recorder(const std::filesystem::path& path, LineLog log) {
  return path.empty() ? nullptr : std::make_unique<Recorder>(path, std::move(log));
}

bool is_record(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos) return true;
  const std::string_view line = text.substr(start, text.find('\n', start) - start);
  const Json json = parse_json(line);
  if (json.is_object()) return json.contains("operation");
  return line.starts_with('{') && line.find(R"("operation")") != std::string_view::npos;
}

std::vector<Recorded> merged(const std::vector<Recorded>& recorded) {
  std::map<RecordGroup, Recorded> groups;
  for (const Recorded& one : recorded) {
    const auto [at, is_new] = groups.try_emplace(group_of(one.problem), one);
    if (is_new) continue;
    at->second.calls = added_calls(at->second.calls, one.calls);
    // The smallest stands for all, whatever the order of lines.
    at->second.problem = std::min(at->second.problem, one.problem);
  }
  std::vector<Recorded> result;
  result.reserve(groups.size());
  for (const auto& [group, one] : groups) result.push_back(one);
  return result;
}

}  // namespace attune
