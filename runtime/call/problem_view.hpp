// A problem of any operation, as those who choose and find kernels see it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/call/device.hpp"
#include "runtime/call/preference.hpp"

namespace attune {

/// What an operation says about its problems beyond what they ask for. Each problem type has one, its member `facts`.
struct ProblemFacts {
  Operation operation;
  std::string (*text)(const void* problem);

  /// What no launch of this variant can hold of a problem whose need it meets; null where launches hold everything.
  std::vector<std::string> (*launch_refusals)(const void* problem, const Variant& variant) = nullptr;

  /// The best of the candidates that serve, where the operation has rules of its own; null where fit.hpp's do.
  std::optional<Variant> (*choose)(const void* problem, std::span<const Variant> candidates,
                                   const Device& device) = nullptr;
};

/// The facts of a problem type, with rules of its own or without.
template <class OneProblem>
constexpr ProblemFacts usual_facts(decltype(ProblemFacts::launch_refusals) launch_refusals = nullptr,
                                   decltype(ProblemFacts::choose) choose = nullptr) noexcept {
  return {.operation = OneProblem::operation,
          .text = [](const void* problem) { return static_cast<const OneProblem*>(problem)->text(); },
          .launch_refusals = launch_refusals,
          .choose = choose};
}

/// The problem outlives it.
class ProblemView {
 public:
  template <class OneProblem>
  requires requires { OneProblem::facts; }
  ProblemView(const OneProblem& problem)  // implicit: a problem is what callers have
      : ask_(problem.ask()), problem_(&problem), facts_(&OneProblem::facts) {}

  [[nodiscard]] Operation operation() const { return facts_->operation; }
  [[nodiscard]] const Ask& ask() const { return ask_; }
  [[nodiscard]] const Need& need() const { return ask_.need; }
  [[nodiscard]] std::string text() const { return facts_->text(problem_); }

  [[nodiscard]] std::vector<std::string> launch_refusals(const Variant& variant) const {
    return facts_->launch_refusals == nullptr ? std::vector<std::string>{} : facts_->launch_refusals(problem_, variant);
  }

  /// Whether choose() is the operation's own.
  [[nodiscard]] bool has_choose() const { return facts_->choose != nullptr; }
  [[nodiscard]] std::optional<Variant> choose(std::span<const Variant> candidates, const Device& device) const {
    return facts_->choose(problem_, candidates, device);
  }

  /// The problem where it is of this type, else null.
  template <class OneProblem>
  [[nodiscard]] const OneProblem* get_if() const {
    return facts_ == &OneProblem::facts ? static_cast<const OneProblem*>(problem_) : nullptr;
  }

 private:
  Ask ask_;
  const void* problem_;
  const ProblemFacts* facts_;
};

}  // namespace attune
