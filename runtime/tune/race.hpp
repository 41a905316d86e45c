// The race of a problem's candidates against the heuristic's choice: which is fastest, and how sure that is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace attune::tune {

/// How a race is run.
struct RaceRules {
  std::uint64_t seed = 1;     ///< of the order of launches
  double confidence = 0.99;   ///< that it takes to replace the heuristic's choice
  double least_gain = 0.005;  ///< part of the time that a winner saves at least; less is not worth another kernel
  int first_rounds = 3;       ///< of all candidates; each later stage doubles it
  int most_rounds = 24;       ///< of a stage
  double hopeless = 1.25;     ///< times the fastest median: who takes longer leaves after any stage
  int duel_rounds = 60;
};

/// Candidates are numbers from 0; 0 is the heuristic's choice.
struct RaceTrack {
  /// Times a launch of each candidate in this order, in seconds. Rounds are numbered, those of the duel from
  /// `first_duel_round`; the same number comes with the same order where the same candidates are left. Nothing when the
  /// race is to stop.
  std::function<std::optional<std::vector<double>>(int number, std::span<const int> order)> round;
  /// Why a candidate cannot win although it is fast; asked before the duel.
  std::function<bool(int candidate)> is_sound;
  /// Seconds of this race's time that are left.
  std::function<double()> left;
};
inline constexpr int first_duel_round = 1'000'000;

struct RaceResult {
  int winner = 0;
  int challenger = 0;                        ///< the fastest of the others; 0: there was none
  double confidence = 0;                     ///< that the challenger is faster than the heuristic's choice
  double heuristic_seconds = 0;              ///< median of the duel
  double challenger_seconds = 0;             ///< that, less the median of the gains: of rounds, as what decides
  bool decided = false;                      ///< the duel was long enough to tell, or there was nobody to fight it
  bool complete = false;                     ///< no stage was cut short
  std::vector<std::vector<double>> seconds;  ///< of each candidate, outside the duel
};

/// Successive halving (Karnin, Koren, Somekh 2013), then a duel. A round times each candidate once, in shuffled order,
/// so that drift of the clock meets all alike. After a stage the slower half by median leaves, save the heuristic's
/// choice, and so do the hopeless; the rest runs twice as many rounds. The last one duels with the heuristic's choice
/// over fresh rounds: the measurements that chose it flatter it. It wins where confidence_that_second_is_smaller() and
/// the median of the gains reach what the rules ask for; then equal kernels are confused at most once in 1 / (1 -
/// confidence) races. Stages take three quarters of the time at most, the rest is for the duel.
RaceResult race(int candidates, const RaceRules& rules, const RaceTrack& track);

}  // namespace attune::tune
