// The tuner: compiles the candidates of many problems, races them, keeps what it learns.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/tune/candidates.hpp"
#include "runtime/tune/journal.hpp"
#include "runtime/tune/race.hpp"

namespace attune::tune {

struct TunerRules {
  RaceRules race;
  double budget = 540;  ///< seconds, of everything
  int spill_limit = 0;  ///< bytes of stores and loads that a candidate may spill
  int jobs = 0;         ///< compilations at a time; 0: one for each core that no GPU's thread needs
  std::string date;     ///< of the outcomes
};

/// A problem and what may serve it.
struct Task {
  AnyProblem problem;
  Candidates candidates;
  double launch_seconds;  ///< about: estimated_seconds()
};

/// How far a run is.
struct Status {
  int to_build = 0;
  int built = 0;
  int rejected = 0;  ///< candidates that did not compile, spill, or are wrong
  int problems = 0;
  int finished = 0;
  std::string last;  ///< what came of the last problem
  double left = 0;   ///< seconds of the budget
};

/// Who watches a run. Both may be asked from any thread, one at a time.
struct Watch {
  std::function<void(const Status&)> progress;
  std::function<bool()> interrupted;
};

/// A candidate that was not raced, and a problem without an outcome; and why.
struct Rejected {
  std::string variant;
  std::string reason;
};
struct Undecided {
  std::string problem;
  std::string reason;
};

struct TuneResult {
  std::vector<Outcome> outcomes;  ///< in the order of the tasks
  std::vector<Undecided> undecided;
  std::vector<Rejected> rejected;
  int measured_rounds = 0;
  int recalled_rounds = 0;  ///< that the journal had
  bool interrupted = false;
};

/// Tunes every task: a pool of threads compiles, in the order of the tasks, a thread for each GPU takes one task after
/// the other, waits for its candidates, checks those that nobody has checked yet and races them. Each task gets a part
/// of the time that is left, as its launches take. What fails on a GPU ends the run with that Error; the journal then
/// knows which variant it was, and the next run leaves it out.
TuneResult tune(std::span<const Task> tasks, Lab& lab, Journal& journal, const TunerRules& rules, const Watch& watch);

/// Seconds that the launches of a whole race take, if a launch takes that long.
double race_seconds(std::size_t candidates, double launch_seconds, const RaceRules& rules);

}  // namespace attune::tune
