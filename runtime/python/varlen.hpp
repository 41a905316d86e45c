// One call over a ragged batch from Python: checked, then run where its arrays are.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "runtime/python/attention.hpp"
#include "runtime/python/framework.hpp"

namespace attune::python {

/// Each as the caller passed it.
struct VarlenArguments {
  std::span<const Argument> arrays;  ///< q, k and v, which lie in one to three of them
  nanobind::handle cu_seqlens_q;
  nanobind::handle cu_seqlens_k;  ///< an array, or with a block_table and seqused_k None
  nanobind::handle max_seqlen_q;  ///< an integer
  nanobind::handle max_seqlen_k;  ///< likewise
  Options options;
  nanobind::handle block_table;  ///< an array or None, as is what follows
  nanobind::handle seqused_q;
  nanobind::handle seqused_k;
  nanobind::handle out;
  Additions additions;
  const ExpressionOptions* expressions = nullptr;  ///< none where it is null
};

/// Attention over sequences of any lengths, one after the other; where none has more than 8 queries, and decode takes
/// the rest of the call, by decode's kernels. Returns the output, or (output, LSE, None). Throws a
/// Python exception or Error; then nothing was launched.
nanobind::object varlen(const VarlenArguments& arguments);

/// Adds varlen, varlen_kvpacked, varlen_qkvpacked and expressed_varlen to the module.
void bind_varlen(nanobind::module_& module);

}  // namespace attune::python
