// What a process meets: the problems of its calls, in a file from which `attune spec-from` makes specs.
//
// $ATTUNE_RECORD names the file, in which %p stands for the process's id. Each line is a JSON object: an operation, the
// fields of its problem and how many calls the line stands for; fields that are left out have their usual value.
// "score" and "mask" are expressions as texts, "sink" is true where there are logits.
//
//   {"operation":"decode","dtype":"bf16","batch":8,"seqlen_q":1,"heads_q":32,...,"calls":1}
//
// Lines are only ever added, each by one write to the file's end, so that any number of processes and registries share
// a file. A problem is written as soon as it is first met, and again with the calls since then whenever their number
// has doubled and when the registry goes: a server that is killed has recorded every problem, and of its calls at least
// half. A reader adds up what lines say of the same problem.
//
// Lengths hardly ever repeat, so problems that differ in nothing but sizes within a power of two, and that every
// registry serves alike (Problem::key()), count as one: the first of them stands for all. A record stays small however
// long a server runs, but for one whose texts have numbers in them that change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/diagnostic.hpp"
#include "runtime/base/log.hpp"
#include "runtime/operations/operations.hpp"

namespace attune {

struct Recorded {
  AnyProblem problem;
  long long calls = 0;  ///< 0: it was only prepared

  auto operator<=>(const Recorded&) const = default;
};

/// Of one line; sums stop at what a long long holds.
inline constexpr long long most_calls = 1LL << 53;

/// Both together, at most what a long long holds: records may come from anywhere.
long long added_calls(long long calls, long long more);

/// What problems that count as one have in common: the problem with sizes rounded down to powers of two, and what it
/// asks for.
using RecordGroup = std::pair<AnyProblem, Ask>;
RecordGroup group_of(const AnyProblem& problem);

/// $ATTUNE_RECORD; empty (nothing is recorded) where it is not set.
std::filesystem::path default_record_path();

/// Writes a record. Thread-safe.
class Recorder {
 public:
  /// Makes the file where there is none; %p in its name is the process's id. A file that cannot be written is said once
  /// through `log` and costs nothing but the record.
  explicit Recorder(const std::filesystem::path& path, LineLog log = log_to_stderr);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Counts calls of a sound problem; 0 for one that was only prepared.
  void note(const AnyProblem& problem, long long calls);

  /// Writes all counts that the file does not have yet.
  void write_all();

 private:
  struct Entry {
    AnyProblem first;
    long long calls = 0;
    long long written = 0;  ///< of them
  };

  void write(Entry& entry);
  void append(std::string_view line);

  std::filesystem::path path_;
  LineLog log_;
  std::mutex mutex_;
  std::map<RecordGroup, Entry> met_;
  bool broken_ = false;  ///< writing failed, which was said
};

/// Null where the path is empty.
std::unique_ptr<Recorder> open_recorder(const std::filesystem::path& path, LineLog log = log_to_stderr);

/// One line of a record, with a newline.
std::string record_line(const Recorded& recorded);

/// The lines of a record, each with the place of what is wrong. A last line without a newline is being written by
/// someone, and left out.
Result<std::vector<Recorded>> parse_record(std::string_view text, const std::string& file);

/// What is read of a record at most.
inline constexpr std::size_t largest_record = std::size_t{1} << 30;  // bytes

/// Whether a file's text is meant as a record: its first line is an object with an operation, or would be one but for a
/// mistake, or it is blank.
bool is_record(std::string_view text);

/// Problems that count as one together, their calls added up, in an order that depends on the problems alone (of
/// expressions, on which was met first).
std::vector<Recorded> merged(const std::vector<Recorded>& recorded);

}  // namespace attune
