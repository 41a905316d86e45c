// What the mutation test does to a kernel: launches that are made again and again, and what is known about their
// results.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "generator/variant.hpp"
#include "runtime/emulator/emulator.hpp"

namespace attune::mutation_tests {

/// How a bug showed. `work`: the result is right, but more sites were evaluated than without the bug, as when a block
/// is loaded that no query sees, or a full one masked.
enum class Notice { none, fault, numbers, banks, work };

/// One launch of a kernel.
class Experiment {
 public:
  Experiment() = default;
  virtual ~Experiment() = default;
  Experiment(const Experiment&) = delete;
  Experiment& operator=(const Experiment&) = delete;

  /// What is wrong with the kernel as it was emitted, or nothing. Sets the measure for bank conflicts and work.
  std::string run_unmutated(const emulator::Kernel& kernel);

  Notice run(const emulator::Kernel& kernel);

 protected:
  /// Launches the kernel: what shows without a measure, and how many wavefronts shared memory took, if that counts.
  struct Seen {
    Notice notice = Notice::none;
    long long wavefronts = 0;
  };
  virtual Seen launch(const emulator::Kernel& kernel) = 0;

  /// What the launch was about and what was wrong with it.
  [[nodiscard]] virtual std::string complaint() const = 0;

 private:
  long long most_wavefronts_ = 0;  // without a bug, ...
  long long most_steps_ = 0;       // ... and sites evaluated
};

/// Of a kernel of prefill without expressions, cheap ones first: a mutant runs until it is noticed.
std::vector<std::unique_ptr<Experiment>> prefill_experiments(const Variant& variant);

/// Of a kernel that stores, cheap ones first.
std::vector<std::unique_ptr<Experiment>> store_experiments(const Variant& variant);

/// Of one of the backward pass.
std::vector<std::unique_ptr<Experiment>> backward_experiments(const Variant& variant);

/// Of one with expressions, of prefill or mask_blocks.
std::vector<std::unique_ptr<Experiment>> expressed_experiments(const Variant& variant);

/// Of one that rotates queries and keys in place.
std::vector<std::unique_ptr<Experiment>> rotary_experiments(const Variant& variant);

}  // namespace attune::mutation_tests
