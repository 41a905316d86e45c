// What a call does to its scores beside scaling and capping them: from Python's arguments to those of the C ABI.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/python/operands.hpp"

namespace attune::python {

/// The expressions of a call, each as the caller passed it.
struct ExpressionOptions {
  nanobind::handle score;   ///< a text, or None
  nanobind::handle mask;    ///< likewise
  nanobind::handle params;  ///< a dict of arrays by their names, or None

  static constexpr std::array names{"score", "mask", "params"};
};

/// What of a call the arrays of its expressions follow.
struct ExpressedSizes {
  std::int32_t batch;
  std::int32_t heads_q;
  bool causal;  ///< no query sees a key after its own position
};

/// Whether there is a text, not None, and what it is. Raises TypeError where it is none, ValueError where it has a zero
/// inside of it, where the C ABI's texts end.
bool read_text(const char* name, nanobind::handle text, std::string& to);

/// The expressions of a call and their arrays, for as long as it takes.
class ExpressionArguments {
 public:
  /// `alibi_slopes`: an array, (heads_q,) or (batch, heads_q), or None; `sink`: (heads_q,), of any floating-point dtype
  /// that kernels know, or None; `options`: null where there are none. Throws where one of them is wrong.
  ExpressionArguments(const First& first, nanobind::handle alibi_slopes, nanobind::handle sink,
                      const ExpressionOptions* options, const ExpressedSizes& sizes);
  ExpressionArguments(const ExpressionArguments&) = delete;
  ExpressionArguments& operator=(const ExpressionArguments&) = delete;

  /// Enters them into the arguments of attention to keys of any kind, or of its gradients, which point here from then
  /// on.
  template <class Args>
  void set(Args& args) const {
    args.score = has_score_ ? score_.c_str() : nullptr;
    args.mask = has_mask_ ? mask_.c_str() : nullptr;
    args.params = arrays_.data();
    args.param_count = static_cast<std::int32_t>(arrays_.size());
    if constexpr (requires { args.sink; }) {
      args.sink = sink_;
      args.sink_like_q = sink_like_q_ ? 1 : 0;
    }
  }

  /// The arrays that expressions look up, as they were passed.
  [[nodiscard]] std::span<const nanobind::object> arrays() const { return given_; }
  /// The sink's, float32 or of q's dtype; none where there is none.
  [[nodiscard]] nanobind::handle sink() const { return sink_array_; }

 private:
  void add(const attune_named_array& array, nanobind::handle given);
  void read_slopes(const First& first, nanobind::handle slopes, const ExpressedSizes& sizes);
  void read_sink(const First& first, nanobind::handle sink, std::int32_t heads_q);
  void read_options(const First& first, const ExpressionOptions& options);

  std::string score_;
  std::string mask_;
  bool has_score_ = false;
  bool has_mask_ = false;
  std::vector<std::string> names_;  ///< to which arrays_ points
  std::vector<attune_named_array> arrays_;
  std::vector<nanobind::object> given_;  ///< arrays_ as they were passed
  const void* sink_ = nullptr;
  bool sink_like_q_ = false;                        ///< not float32
  nanobind::object sink_array_ = nanobind::none();  ///< the caller's, or one that was made of it
};

}  // namespace attune::python
