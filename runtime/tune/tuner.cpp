#include "runtime/tune/tuner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/base/text.hpp"

namespace attune::tune {
namespace {

/// With four significant digits: a median of launches repeats within 0.1% at best.
double rounded_microseconds(double seconds) { return std::stod(fmt::format("{:.4g}", seconds * 1e6)); }

class Run {
 public:
  Run(std::span<const Task> tasks, Lab& lab, Journal& journal, const TunerRules& rules, const Watch& watch)
      : tasks_(tasks),
        lab_(&lab),
        journal_(&journal),
        rules_(&rules),
        watch_(&watch),
        deadline_(lab.now() + rules.budget) {
    for (const Task& task : tasks) {
      ids_.push_back(race_id(record_of(task.problem, task.candidates.variants), rules_text(rules)));
    }
    outcomes_.resize(tasks.size());
    status_.problems = static_cast<int>(tasks.size());
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      outcomes_[i] = journal.outcome(ids_[i]);
      if (outcomes_[i] && outcomes_[i]->complete) {
        ++status_.finished;
      } else {
        open_.push_back(i);
        weight_left_ += weight(tasks[i]);
      }
    }
    plan_builds();
  }

  TuneResult run() && {
    {
      std::vector<std::jthread> threads;
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      const int jobs = rules_->jobs > 0 ? rules_->jobs : cores - lab_->gpus();  // launches must not wait for compilers
      for (int i = 0; i < std::max(1, std::min(jobs, status_.to_build)); ++i) {
        threads.emplace_back([this] { guard([this] { build_all(); }); });
      }
      const int gpus = std::min(lab_->gpus(), static_cast<int>(open_.size()));
      for (int gpu = 0; gpu < gpus; ++gpu) {
        threads.emplace_back([this, gpu] { guard([this, gpu] { measure_all(gpu); }); });
      }
    }
    if (failure_) std::rethrow_exception(failure_);
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (outcomes_[i]) {
        result_.outcomes.push_back(*outcomes_[i]);
      } else {
        const Variant& heuristic = tasks_[i].candidates.variants.front();
        const bool is_unfit = rejected_.contains(heuristic.name());
        result_.undecided.push_back(
            {text_of(tasks_[i].problem), is_unfit ? "the heuristic's choice was rejected" : "no time was left"});
      }
    }
    result_.interrupted = stopped_;
    return std::move(result_);
  }

 private:
  static std::string rules_text(const TunerRules& rules) {
    const RaceRules& race = rules.race;
    return fmt::format("{} {} {} {} {} {} {}", race.seed, race.confidence, race.least_gain, race.first_rounds,
                       race.most_rounds, race.hopeless, race.duel_rounds);
  }

  [[nodiscard]] double weight(const Task& task) const {
    constexpr double fixed = 0.5;  // seconds: memory, inputs, checks
    return fixed + race_seconds(task.candidates.variants.size(), task.launch_seconds, rules_->race);
  }

  /// Lists what is to be built, in the order in which it is needed. What the journal refuses is not.
  void plan_builds() {
    std::set<std::string> seen;
    for (const std::size_t i : open_) {
      for (const Variant& variant : tasks_[i].candidates.variants) {
        const std::string name = variant.name();
        if (!seen.insert(name).second) continue;
        const std::optional<BuildReport> known = journal_->build(name);
        if (known && !known->error.empty()) {
          reports_.emplace(name, *known);
          reject(name, "it did not compile: " + known->error);
        } else {
          builds_.push_back(variant);
        }
      }
    }
    status_.to_build = static_cast<int>(builds_.size());
  }

  [[nodiscard]] double left() const { return deadline_ - lab_->now(); }

  /// Whether all is to end.
  bool over() {
    const std::scoped_lock lock(watching_);
    if (!stopped_ && watch_->interrupted && watch_->interrupted()) stopped_ = true;
    return stopped_ || left() <= 0;
  }

  template <class Work>
  void guard(const Work& work) {
    try {
      work();
    } catch (...) {
      const std::scoped_lock lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      stopped_ = true;
    }
    changed_.notify_all();
  }

  void tell() {
    if (!watch_->progress) return;
    Status status;
    {
      const std::scoped_lock lock(mutex_);
      status = status_;
    }
    status.left = std::max(0.0, left());
    const std::scoped_lock lock(watching_);
    watch_->progress(status);
  }

  void reject(const std::string& name, const std::string& reason) {
    const std::scoped_lock lock(mutex_);
    if (!rejected_.insert(name).second) return;
    result_.rejected.push_back({name, reason});
    ++status_.rejected;
  }

  void build_all() {
    for (std::size_t i = next_build_++; i < builds_.size() && !over(); i = next_build_++) {
      const std::string name = builds_[i].name();
      const BuildReport report = lab_->build(builds_[i]);
      if (!journal_->build(name)) journal_->add_build(name, report);
      if (!report.error.empty()) reject(name, "it did not compile: " + report.error);
      {
        const std::scoped_lock lock(mutex_);
        reports_.emplace(name, report);
        ++status_.built;
      }
      changed_.notify_all();
      tell();
    }
    changed_.notify_all();
  }

  void measure_all(int gpu) {
    std::unique_ptr<Bench> bench;
    for (std::size_t i = next_open_++; i < open_.size(); i = next_open_++) {
      const Task& task = tasks_[open_[i]];
      if (wait_for_builds(task)) {
        if (!bench) bench = lab_->bench(gpu);
        measure(*bench, open_[i]);
      }
      {
        const std::scoped_lock lock(mutex_);
        weight_left_ -= weight(task);
      }
      tell();
      if (over()) return;
    }
  }

  /// Whether a task's candidates are there before all is over.
  bool wait_for_builds(const Task& task) {
    constexpr auto patience = std::chrono::milliseconds(50);  // a signal or the deadline wakes nobody
    std::vector<std::string> names;
    for (const Variant& variant : task.candidates.variants) names.push_back(variant.name());
    const auto all_there = [&] {
      return std::ranges::all_of(names, [&](const std::string& name) { return reports_.contains(name); });
    };
    std::unique_lock lock(mutex_);
    while (!all_there()) {
      lock.unlock();
      if (over()) return false;
      lock.lock();
      changed_.wait_for(lock, patience, all_there);
    }
    lock.unlock();
    return !over();
  }

  /// Whether a variant may race; the heuristic's choice may spill.
  bool is_fit(Bench& bench, const Variant& variant, bool is_heuristic) {
    const std::string name = variant.name();
    BuildReport report;
    {
      const std::scoped_lock lock(mutex_);
      report = reports_.at(name);
    }
    if (!report.error.empty()) return false;
    if (report.spill_bytes > rules_->spill_limit && !is_heuristic) {
      reject(name, fmt::format("it spills {} bytes, over the {} allowed", report.spill_bytes, rules_->spill_limit));
      return false;
    }
    std::optional<std::string> found = journal_->check(name);
    if (!found) {
      try {
        found = bench.check(variant);
      } catch (const Error& error) {
        // After a fault nothing on this GPU works any more: the next run must know whose it was.
        journal_->add_check(name, fmt::format("it failed: {}", error.what()));
        throw;
      }
      journal_->add_check(name, *found);
    }
    if (!found->empty()) reject(name, *found);
    return found->empty();
  }

  void measure(Bench& bench, std::size_t index) {
    const Task& task = tasks_[index];
    std::vector<Variant> racing;
    for (const Variant& variant : task.candidates.variants) {
      if (is_fit(bench, variant, &variant == &task.candidates.variants.front())) {
        racing.push_back(variant);
      }
      // Without the heuristic's choice there is nothing to beat, and whoever reads of its rejection has more to do.
      if (racing.empty() || over()) return;
    }
    const RaceRecord record = record_of(task.problem, racing);
    const std::string id = race_id(record, rules_text(*rules_));
    journal_->add_race(id, record);
    bench.open(task.problem, racing);
    const double share = share_of(task);
    const double begin = lab_->now();

    const RaceTrack track{
        .round = [&](int number, std::span<const int> order) { return round(bench, id, number, order); },
        .is_sound =
            [&](int candidate) {
              const std::string difference = bench.compare(candidate, 0);
              if (!difference.empty()) reject(racing[static_cast<std::size_t>(candidate)].name(), difference);
              return difference.empty();
            },
        .left = [&] { return share - (lab_->now() - begin); }};
    const RaceResult raced = race(static_cast<int>(racing.size()), rules_->race, track);
    if (!raced.decided) return;
    const double seconds = raced.winner == 0 ? raced.heuristic_seconds : raced.challenger_seconds;
    const Identity& here = journal_->identity();
    const Outcome outcome{.row = {.problem = task.problem,
                                  .result = {.variant = racing[static_cast<std::size_t>(raced.winner)],
                                             .microseconds = rounded_microseconds(seconds),
                                             .default_microseconds = rounded_microseconds(raced.heuristic_seconds),
                                             .confidence = std::round(raced.confidence * 1e4) / 1e4,
                                             .date = rules_->date,
                                             .driver = here.driver,
                                             .compiler = here.compiler}},
                          .heuristic = racing.front(),
                          .complete = raced.complete};
    journal_->add_outcome(ids_[index], outcome);
    const std::scoped_lock lock(mutex_);
    outcomes_[index] = outcome;
    if (outcome.complete) ++status_.finished;
    status_.last = summary(outcome);
  }

  static std::string summary(const Outcome& outcome) {
    const TunedResult& result = outcome.row.result;
    const std::string problem = text_of(outcome.row.problem);
    const std::string time = seconds_text(result.microseconds / 1e6);
    if (result.variant == outcome.heuristic) return fmt::format("{}: {}, nothing beats it", problem, time);
    const double gain = 100 * (result.default_microseconds / result.microseconds - 1);
    return fmt::format("{}: {}, {:+.1f}% by {}", problem, time, gain, result.variant.name());
  }

  /// A task's part of the time that is left.
  double share_of(const Task& task) {
    const std::scoped_lock lock(mutex_);
    const double part = std::min(1.0, weight(task) * lab_->gpus() / std::max(1e-9, weight_left_));
    return left() * part;
  }

  std::optional<std::vector<double>> round(Bench& bench, const std::string& id, int number,
                                           std::span<const int> order) {
    std::optional<std::vector<double>> seconds = journal_->round(id, number, order);
    const bool recalled = seconds.has_value();
    if (!recalled) {
      if (over()) return std::nullopt;
      seconds = bench.time(number, order);
      journal_->add_round(id, number, order, *seconds);
    }
    const std::scoped_lock lock(mutex_);
    ++(recalled ? result_.recalled_rounds : result_.measured_rounds);
    return seconds;
  }

  std::span<const Task> tasks_;
  Lab* lab_;
  Journal* journal_;
  const TunerRules* rules_;
  const Watch* watch_;
  double deadline_;
  std::vector<std::string> ids_;   ///< of each task, with all of its candidates
  std::vector<std::size_t> open_;  ///< tasks without an outcome
  std::vector<Variant> builds_;
  std::atomic<std::size_t> next_build_{0};
  std::atomic<std::size_t> next_open_{0};
  std::atomic<bool> stopped_{false};

  std::mutex watching_;  ///< one question or message at a time
  std::mutex mutex_;     ///< of what follows
  std::condition_variable changed_;
  double weight_left_ = 0;
  std::map<std::string, BuildReport> reports_;
  std::set<std::string> rejected_;
  std::vector<std::optional<Outcome>> outcomes_;
  Status status_;
  TuneResult result_;
  std::exception_ptr failure_;
};

}  // namespace

TuneResult tune(std::span<const Task> tasks, Lab& lab, Journal& journal, const TunerRules& rules, const Watch& watch) {
  return Run(tasks, lab, journal, rules, watch).run();
}

double race_seconds(std::size_t candidates, double launch_seconds, const RaceRules& rules) {
  std::size_t launches = 2 * static_cast<std::size_t>(rules.duel_rounds);
  auto rounds = static_cast<std::size_t>(rules.first_rounds);
  for (std::size_t racing = candidates - 1; racing > 1; racing = (racing + 1) / 2) {
    launches += rounds * (racing + 1);
    rounds = std::min(2 * rounds, static_cast<std::size_t>(rules.most_rounds));
  }
  return static_cast<double>(launches) * launch_seconds;
}

}  // namespace attune::tune
