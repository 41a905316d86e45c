// A laboratory without hardware: kernels have speeds that a test decides, and noise that a seed decides.
#pragma once

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "generator/hash.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/random.hpp"
#include "runtime/tune/lab.hpp"

namespace attune::tune_tests {

/// Noise of a launch: 1% at each, and one in fifty takes up to half as long again.
inline double noisy(double seconds, Random& random) {
  const double radius = std::sqrt(-2 * std::log(random.uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
  const double hiccup = random.below(50) == 0 ? 0.5 * random.uniform() : 0;
  return seconds * std::exp(0.01 * normal) * (1 + hiccup);
}

inline std::uint64_t seed_of(const std::string& text) { return std::stoull(xxh3_hex(text).substr(0, 15), nullptr, 16); }

/// What a launch takes by itself: the same for the same kernel and problem everywhere.
inline double usual_speed(const tune::AnyProblem& problem, const Variant& variant) {
  const double base = tune::estimated_seconds(problem, *find_gpu_device("h200"));
  return base * (1 + 0.3 * Random(seed_of(text_of(problem) + variant.name())).uniform());
}

/// A clock that launches and compilations drive, counters of what was asked, and faults that a test plants.
class FakeLab final : public tune::Lab {
 public:
  std::function<double(const tune::AnyProblem&, const Variant&)> speed = usual_speed;
  std::function<tune::BuildReport(const Variant&)> compiler = [](const Variant&) { return tune::BuildReport{}; };
  std::function<std::string(const Variant&)> checker = [](const Variant&) { return std::string(); };
  std::function<std::string(const Variant&)> comparer = checker;
  int gpu_count = 1;
  double build_seconds = 0;
  long long rounds_until_death = -1;  ///< then time() throws; -1: never

  std::atomic<int> builds{0};
  std::atomic<int> checks{0};
  std::atomic<int> rounds{0};
  std::atomic<long long> launches{0};

  tune::BuildReport build(const Variant& variant) override {
    ++builds;
    pass(build_seconds);
    return compiler(variant);
  }
  [[nodiscard]] int gpus() const override { return gpu_count; }
  std::unique_ptr<tune::Bench> bench(int /*gpu*/) override { return std::make_unique<FakeBench>(*this); }
  [[nodiscard]] double now() const override {
    const std::scoped_lock lock(mutex_);
    return now_;
  }
  void pass(double seconds) {
    const std::scoped_lock lock(mutex_);
    now_ += seconds;
  }

 private:
  class FakeBench final : public tune::Bench {
   public:
    explicit FakeBench(FakeLab& lab) : lab_(&lab) {}
    std::string check(const Variant& variant) override {
      ++lab_->checks;
      return lab_->checker(variant);
    }
    void open(const tune::AnyProblem& problem, std::span<const Variant> candidates) override {
      problem_ = problem;
      candidates_.assign(candidates.begin(), candidates.end());
    }
    std::vector<double> time(int round, std::span<const int> order) override {
      if (lab_->rounds_until_death >= 0 && lab_->rounds >= lab_->rounds_until_death) {
        throw Error(ATTUNE_DRIVER_ERROR, "the GPU is gone");
      }
      ++lab_->rounds;
      std::vector<double> seconds;
      for (const int candidate : order) {
        const Variant& variant = candidates_[static_cast<std::size_t>(candidate)];
        Random random(seed_of(text_of(problem_) + variant.name() + std::to_string(round)));
        seconds.push_back(noisy(lab_->speed(problem_, variant), random));
        lab_->pass(seconds.back());
        ++lab_->launches;
      }
      return seconds;
    }
    std::string compare(int candidate, int /*trusted*/) override {
      return lab_->comparer(candidates_[static_cast<std::size_t>(candidate)]);
    }

   private:
    FakeLab* lab_;
    tune::AnyProblem problem_;
    std::vector<Variant> candidates_;
  };

  mutable std::mutex mutex_;
  double now_ = 0;
};

}  // namespace attune::tune_tests
