// The race on simulated kernels: what it finds, how often it is wrong, and what it costs.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/tune/race.hpp"
#include "runtime/tune/statistics.hpp"
#include "tests/unit/fake_lab.hpp"

namespace {

using namespace attune;
using tune_tests::noisy;

/// Kernels of these speeds under noise and a clock that drifts by a tenth.
struct Simulation {
  std::vector<double> speeds;
  Random random;
  long long launches = 0;
  double spent = 0;
  double budget = 1e9;

  tune::RaceResult run(std::uint64_t seed, const tune::RaceRules& rules = {}) {
    tune::RaceRules own = rules;
    own.seed = seed;
    const tune::RaceTrack track{
        .round = [this](int /*number*/, std::span<const int> order) -> std::optional<std::vector<double>> {
          std::vector<double> seconds;
          for (const int one : order) {
            const double drift = 1 + 0.1 * std::sin(static_cast<double>(launches++) / 300);
            seconds.push_back(noisy(speeds[static_cast<std::size_t>(one)] * drift, random));
            spent += seconds.back();
          }
          return seconds;
        },
        .is_sound = [](int) { return true; },
        .left = [this] { return budget - spent; }};
    return tune::race(static_cast<int>(speeds.size()), own, track);
  }
};

/// Forty kernels up to 40% slower than the best, which is so much faster than the heuristic's choice.
std::vector<double> field(double gain, Random& random) {
  std::vector<double> speeds{1e-4};
  for (int i = 0; i < 40; ++i) speeds.push_back(1e-4 * (1.01 + 0.4 * random.uniform()));
  speeds[1 + random.below(40)] = 1e-4 * (1 - gain);
  return speeds;
}

/// How often the best of field(gain) wins.
double rate_of_finding(double gain, int races) {
  Random random(7);
  int found = 0;
  for (int i = 0; i < races; ++i) {
    Simulation simulation{.speeds = field(gain, random), .random = Random(random())};
    const tune::RaceResult result = simulation.run(static_cast<std::uint64_t>(i));
    const auto best = std::ranges::min_element(simulation.speeds) - simulation.speeds.begin();
    found += result.winner == best ? 1 : 0;
  }
  return static_cast<double>(found) / races;
}

TEST_CASE("the fastest of forty candidates wins") {
  const double clear = rate_of_finding(0.05, 200);
  const double narrow = rate_of_finding(0.02, 200);
  const double least = rate_of_finding(0.01, 200);
  MESSAGE("found: ", clear, " at 5%, ", narrow, " at 2%, ", least, " at 1%");
  CHECK(clear >= 0.99);
  CHECK(narrow >= 0.97);
  CHECK(least >= 0.7);
}

TEST_CASE("of equal kernels another one replaces the heuristic's choice no more often than the confidence says") {
  for (const double confidence : {0.9, 0.99}) {
    CAPTURE(confidence);
    Random random(11);
    int switched = 0;
    int sure = 0;
    constexpr int races = 1000;
    for (int i = 0; i < races; ++i) {
      Simulation simulation{.speeds = std::vector<double>(12, 1e-4), .random = Random(random())};
      const tune::RaceResult result =
          simulation.run(static_cast<std::uint64_t>(i), {.confidence = confidence, .least_gain = 0});
      switched += result.winner != 0 ? 1 : 0;
      sure += result.confidence >= confidence ? 1 : 0;
    }
    MESSAGE("switched in ", switched, " of ", races, " races at confidence ", confidence);
    // Twice the standard deviation above what is promised.
    const double promised = races * (1 - confidence);
    CHECK(switched <= promised + 2 * std::sqrt(promised));
    CHECK(sure >= promised / 4);  // and it is no empty promise
  }
}

TEST_CASE("a candidate that is faster by less than is worth another kernel is a tie") {
  int switched = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    Simulation simulation{.speeds = {1e-4, 0.999e-4, 1.1e-4}, .random = Random(i)};
    switched += simulation.run(i).winner != 0 ? 1 : 0;
  }
  CHECK(switched <= 14);  // noise may make it look like more
}

TEST_CASE("a race ends in its time, and tells when that was too short to decide") {
  for (const double budget : {0.0, 0.001, 0.02, 0.07}) {
    CAPTURE(budget);
    Random random(3);
    Simulation simulation{.speeds = field(0.05, random), .random = Random(5), .budget = budget};
    const tune::RaceResult result = simulation.run(1);
    CHECK(simulation.spent <= budget + 41 * 2e-4);  // a round may begin at the last moment
    CHECK_FALSE(result.complete);
    if (budget < 0.01) {
      CHECK_FALSE(result.decided);
      CHECK(result.winner == 0);
    } else {
      CHECK(result.decided);
    }
  }
}

TEST_CASE("a fast candidate that is unsound leaves its place to the next one") {
  Random random(1);
  Simulation simulation{.speeds = {1.0e-4, 0.8e-4, 0.9e-4, 1.1e-4}, .random = Random(9)};
  const tune::RaceTrack track{.round = [&](int, std::span<const int> order) -> std::optional<std::vector<double>> {
                                std::vector<double> seconds;
                                for (const int one : order)
                                  seconds.push_back(noisy(simulation.speeds[static_cast<std::size_t>(one)], random));
                                return seconds;
                              },
                              .is_sound = [](int one) { return one != 1; },
                              .left = [] { return 1.0; }};
  const tune::RaceResult result = tune::race(4, {}, track);
  CHECK(result.winner == 2);
  CHECK(result.complete);
}

TEST_CASE("a winner's time is beside the heuristic's by what it gains within a round, whatever the clock does") {
  const tune::RaceTrack track{
      .round = [](int number, std::span<const int> order) -> std::optional<std::vector<double>> {
        // 27 rounds at full clocks, 27 at less, and 6 in which the challenger met a hiccup.
        const int which = number % 20;
        const double clock = which < 9 || which >= 18 ? 1e-4 : 1.1e-4;
        std::vector<double> seconds;
        for (const int one : order) seconds.push_back(one == 0 ? clock : clock * (which >= 18 ? 1.2 : 0.99));
        return seconds;
      },
      .is_sound = [](int) { return true; },
      .left = [] { return 1.0; }};
  const tune::RaceResult result = tune::race(2, {}, track);
  CHECK(result.winner == 1);
  CHECK(result.heuristic_seconds == doctest::Approx(1e-4));
  CHECK(result.challenger_seconds == doctest::Approx(0.99e-4));
}

TEST_CASE("without candidates the heuristic's choice is timed alone") {
  Simulation simulation{.speeds = {1e-4}, .random = Random(2)};
  const tune::RaceResult result = simulation.run(1);
  CHECK(result.decided);
  CHECK(result.complete);
  CHECK(result.winner == 0);
  CHECK(result.heuristic_seconds == doctest::Approx(1e-4).epsilon(0.15));
}

TEST_CASE("forty candidates cost 25 launches each, not sixty") {
  Random random(4);
  Simulation simulation{.speeds = field(0.05, random), .random = Random(5)};
  CHECK(simulation.run(1).complete);
  CHECK(simulation.launches <= 41 * 25);
}

TEST_CASE("the confidence in a difference: none of few pairs, half of none, all of a clear one") {
  const std::vector<double> ones(20, 1.0);
  std::vector<double> less(20, 0.9);
  CHECK(tune::confidence_that_second_is_smaller(std::vector<double>(9, 1.0), std::vector<double>(9, 0.5)) == 0);
  CHECK(tune::confidence_that_second_is_smaller(ones, ones) == doctest::Approx(0.5).epsilon(0.05));
  CHECK(tune::confidence_that_second_is_smaller(ones, less) > 0.9999);
  CHECK(tune::confidence_that_second_is_smaller(less, ones) < 0.0001);
  less[3] = 9;  // one wild value
  CHECK(tune::confidence_that_second_is_smaller(ones, less) > 0.999);
}

TEST_CASE("the confidence agrees with the exact distribution of the signed ranks") {
  // Of ten pairs with differences 1 .. 10: W = 45 of 55 where those of size 4 and 6 are below 0.
  // By counting the 1,024 signs: P(W >= 45) = 43 / 1024.
  std::vector<double> first;
  std::vector<double> second(10, 1.0);
  for (int i = 1; i <= 10; ++i) first.push_back(std::exp(i == 4 || i == 6 ? -0.01 * i : 0.01 * i));
  int at_least = 0;
  for (int signs = 0; signs < 1024; ++signs) {
    int above = 0;
    for (int i = 0; i < 10; ++i) above += (signs >> i & 1) != 0 ? i + 1 : 0;
    at_least += above >= 45 ? 1 : 0;
  }
  CHECK(1 - tune::confidence_that_second_is_smaller(first, second) == doctest::Approx(at_least / 1024.0).epsilon(0.1));
}

TEST_CASE("the median of a few values") {
  CHECK(tune::median({}) == 0);
  CHECK(tune::median({3}) == 3);
  CHECK(tune::median({4, 1, 3, 2}) == 2.5);
  CHECK(tune::median({9, 1, 2}) == 2);
}

}  // namespace
