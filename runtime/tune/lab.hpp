// What the tuner asks of hardware and compilers; tests have one without either.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/tune/problems.hpp"

namespace attune::tune {

/// What a compiler made of a variant.
struct BuildReport {
  std::string error;    ///< empty when it compiled
  int spill_bytes = 0;  ///< stores and loads together
  int registers = 0;
  double seconds = 0;  ///< of compilation; 0 where a cache had it
};

/// One GPU with one problem at a time; of one thread.
class Bench {
 public:
  Bench() = default;
  virtual ~Bench() = default;
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  /// Runs a built variant on small problems; what differs from the float64 reference, or nothing.
  virtual std::string check(const Variant& variant) = 0;

  /// Brings a problem and its built candidates to the GPU; the ones before leave.
  virtual void open(const AnyProblem& problem, std::span<const Variant> candidates) = 0;

  /// Seconds of one launch of each of these candidates, in this order. Numbers of rounds as race() gives them.
  virtual std::vector<double> time(int round, std::span<const int> order) = 0;

  /// How the results of two candidates for the whole problem differ; empty when they agree.
  virtual std::string compare(int candidate, int trusted) = 0;
};

/// Compilers and GPUs. Thread-safe.
class Lab {
 public:
  Lab() = default;
  virtual ~Lab() = default;
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  /// Compiles a variant and keeps it for the benches.
  virtual BuildReport build(const Variant& variant) = 0;

  [[nodiscard]] virtual int gpus() const = 0;

  /// On the thread that will use it.
  virtual std::unique_ptr<Bench> bench(int gpu) = 0;

  /// Seconds since some time.
  [[nodiscard]] virtual double now() const = 0;
};

}  // namespace attune::tune
