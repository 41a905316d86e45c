#include "runtime/tune/race.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/base/random.hpp"
#include "runtime/tune/statistics.hpp"

namespace attune::tune {
namespace {

class Race {
 public:
  Race(int candidates, const RaceRules& rules, const RaceTrack& track)
      : rules_(&rules), track_(&track), share_(track.left()) {
    result_.seconds.resize(static_cast<std::size_t>(candidates));
    for (int i = 1; i < candidates; ++i) ranking_.push_back(i);
  }

  RaceResult run() && {
    result_.complete = run_stages();
    if (const std::optional<int> challenger = sound_challenger()) {
      duel(*challenger);
    } else {
      run_alone();
    }
    return std::move(result_);
  }

 private:
  /// Adds a round of these candidates to their measurements; whether there was time.
  bool run_round(int number, const std::vector<int>& racing, std::vector<std::vector<double>>& seconds) {
    // Depends on the round's number alone, so that a race that is run again meets the same.
    Random random(rules_->seed * 1'000'003 + static_cast<std::uint64_t>(number));
    const std::vector<int> order = shuffled(racing, random);
    const auto measured = track_->round(number, order);
    if (!measured) return false;
    for (std::size_t i = 0; i < order.size(); ++i)
      seconds[static_cast<std::size_t>(order[i])].push_back((*measured)[i]);
    return true;
  }

  /// Sorts the first `racing` of the ranking by what is known of them; how many of them race on.
  std::size_t rank(std::size_t racing) {
    std::vector<double> medians;
    for (const std::vector<double>& own : result_.seconds) medians.push_back(median(own));
    const auto median_of = [&](int one) { return medians[static_cast<std::size_t>(one)]; };
    const auto end = ranking_.begin() + static_cast<std::ptrdiff_t>(racing);
    std::ranges::stable_sort(ranking_.begin(), end, {}, median_of);
    const double limit = rules_->hopeless * median_of(ranking_.front());
    const auto hopeless = std::find_if(ranking_.begin(), end, [&](int one) { return median_of(one) > limit; });
    return std::min((racing + 1) / 2, static_cast<std::size_t>(hopeless - ranking_.begin()));
  }

  /// Until one challenger is left; whether time sufficed.
  bool run_stages() {
    int number = 0;
    int rounds = rules_->first_rounds;
    for (std::size_t racing = ranking_.size(); racing > 1; racing = rank(racing)) {
      std::vector<int> all{0};
      all.insert(all.end(), ranking_.begin(), ranking_.begin() + static_cast<std::ptrdiff_t>(racing));
      for (int i = 0; i < rounds; ++i) {
        const bool in_time = track_->left() > share_ / 4 && run_round(number++, all, result_.seconds);
        if (in_time) continue;
        rank(racing);
        return false;
      }
      rounds = std::min(2 * rounds, rules_->most_rounds);
    }
    return true;
  }

  [[nodiscard]] std::optional<int> sound_challenger() const {
    const auto found = std::ranges::find_if(ranking_, track_->is_sound);
    if (found == ranking_.end()) return std::nullopt;
    return *found;
  }

  void duel(int challenger) {
    result_.challenger = challenger;
    std::vector<std::vector<double>> seconds(result_.seconds.size());
    for (int i = 0; i < rules_->duel_rounds; ++i) {
      if (track_->left() > 0 && run_round(first_duel_round + i, {0, challenger}, seconds)) continue;
      result_.complete = false;
      break;
    }
    const std::vector<double>& heuristic = seconds.front();
    const std::vector<double>& others = seconds[static_cast<std::size_t>(challenger)];
    result_.decided = heuristic.size() >= fewest_pairs;
    result_.confidence = confidence_that_second_is_smaller(heuristic, others);
    result_.heuristic_seconds = median(heuristic);
    std::vector<double> gains;
    for (std::size_t i = 0; i < others.size(); ++i) gains.push_back(1 - others[i] / heuristic[i]);
    const double gain = median(gains);
    // Where the clock has two speeds, the medians of both may be of one each.
    result_.challenger_seconds = result_.heuristic_seconds * (1 - gain);
    const bool better = result_.confidence >= rules_->confidence && gain >= rules_->least_gain;
    if (result_.decided && better) result_.winner = challenger;
  }

  /// Without anybody to beat it the heuristic's choice is timed all the same.
  void run_alone() {
    std::vector<std::vector<double>> seconds(result_.seconds.size());
    int rounds = 0;
    while (rounds < rules_->duel_rounds && track_->left() > 0 && run_round(first_duel_round + rounds, {0}, seconds)) {
      ++rounds;
    }
    result_.complete = result_.complete && rounds == rules_->duel_rounds;
    result_.decided = rounds >= fewest_pairs;
    result_.heuristic_seconds = median(seconds.front());
  }

  const RaceRules* rules_;
  const RaceTrack* track_;
  double share_;
  std::vector<int> ranking_;  ///< but for the heuristic's choice: those still racing first, each part by median
  RaceResult result_;
};

}  // namespace

RaceResult race(int candidates, const RaceRules& rules, const RaceTrack& track) {
  return Race(candidates, rules, track).run();
}

}  // namespace attune::tune
