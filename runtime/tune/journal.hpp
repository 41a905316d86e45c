// What a tuning run has learned so far, on disk: a second run goes on where the first one stopped.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/files.hpp"
#include "runtime/tune/lab.hpp"

namespace attune::tune {

/// What measurements depend on: those of another GPU, driver, compiler or source are worth nothing here.
struct Identity {
  TunedGpu gpu;
  std::string driver;
  std::string compiler;
  std::string sources;  ///< a hash of the templates

  bool operator==(const Identity&) const = default;
};

/// The candidates of one problem; the first is the heuristic's choice.
struct RaceRecord {
  std::string problem;  ///< its text
  double work = 0;      ///< as work_of()
  bool decodes = false;
  std::vector<Variant> candidates;
};
RaceRecord record_of(const AnyProblem& problem, std::vector<Variant> candidates);

/// What came of a race.
struct Outcome {
  TunedRow row;
  Variant heuristic;      ///< its choice; of a tie the row's variant too
  bool complete = false;  ///< no time was short: another run has nothing to add

  bool operator==(const Outcome&) const = default;
};

/// Everything that a journal says.
struct JournalContents {
  struct Round {
    std::vector<int> order;
    std::vector<double> seconds;
  };
  Identity identity;
  std::map<std::string, BuildReport> builds;  ///< by name of the variant
  std::map<std::string, std::string> checks;  ///< what check() said
  std::map<std::string, RaceRecord> races;    ///< by race_id()
  std::map<std::pair<std::string, int>, Round> rounds;
  std::map<std::string, Outcome> outcomes;
  std::size_t whole_bytes = 0;  ///< of the file, without a last line that was torn
};

/// Reads a journal. A last line that was torn is left out; anything else that is not as it should be throws
/// Error{ATTUNE_INVALID_ARGUMENT} with file and line.
JournalContents read_journal(const std::filesystem::path& path);

/// A journal that is written: one JSON object a line, the first one the identity, each with a checksum that a changed
/// bit does not pass. Thread-safe.
class Journal {
 public:
  /// One that is kept in memory alone.
  explicit Journal(Identity identity);

  /// Goes on with the file or starts it. Throws Error{ATTUNE_INVALID_ARGUMENT} when it is of another identity, in use,
  /// or not a journal; std::filesystem::filesystem_error when it cannot be written.
  Journal(const std::filesystem::path& path, const Identity& identity);

  [[nodiscard]] const Identity& identity() const { return contents_.identity; }
  [[nodiscard]] std::optional<BuildReport> build(const std::string& variant) const;
  [[nodiscard]] std::optional<std::string> check(const std::string& variant) const;
  [[nodiscard]] std::optional<std::vector<double>> round(const std::string& race, int number,
                                                         std::span<const int> order) const;
  [[nodiscard]] std::optional<Outcome> outcome(const std::string& race) const;

  void add_build(const std::string& variant, const BuildReport& report);
  void add_check(const std::string& variant, const std::string& found);
  void add_race(const std::string& race, const RaceRecord& record);
  void add_round(const std::string& race, int number, std::span<const int> order, std::span<const double> seconds);
  /// Is on the disk when this returns, and so is all that came before.
  void add_outcome(const std::string& race, const Outcome& outcome);

 private:
  void append(const std::string& line, bool sync);

  mutable std::mutex mutex_;
  JournalContents contents_;
  std::filesystem::path path_;
  std::optional<FileLock> lock_;
  FileDescriptor file_;  ///< not open: memory alone
};

/// Tells races apart: by problem, candidates and how it is run.
std::string race_id(const RaceRecord& record, const std::string& rules);

}  // namespace attune::tune
