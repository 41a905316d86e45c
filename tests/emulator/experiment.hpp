// What the mutation test does to a kernel: launches that are made again and again, and what is known about their
// results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/emulator/emulator.hpp"

namespace attune::mutation_tests {

/// How a bug showed.
enum class Notice { none, fault, numbers, banks };

/// One launch of a kernel.
class Experiment {
 public:
  Experiment() = default;
  virtual ~Experiment() = default;
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  /// What is wrong with the kernel as it was emitted, or nothing. Sets the measure for bank conflicts.
  virtual std::string run_unmutated(const emulator::Kernel& kernel) = 0;

  virtual Notice run(const emulator::Kernel& kernel) = 0;
};

/// Of a kernel that stores, cheap ones first.
std::vector<std::unique_ptr<Experiment>> store_experiments(const Variant& variant);

/// Of one of the backward pass.
std::vector<std::unique_ptr<Experiment>> backward_experiments(const Variant& variant);

/// Of one that rotates queries and keys in place.
std::vector<std::unique_ptr<Experiment>> rotary_experiments(const Variant& variant);

}  // namespace attune::mutation_tests
