// From a call's tensors to what tensor maps are told of them.
#pragma once

#include <cstdint>

#include "runtime/call/operand.hpp"
#include "runtime/call/tensor_description.hpp"
#include "templates/params.h"

namespace attune {

/// Whether a tensor map takes this stride of a dimension of more than one element: at least a row, so that rows do not
/// overlap, and below 2^40 bytes. That it is a multiple of 16 bytes every call fulfils.
bool is_mappable(std::int64_t stride, int head_dim, Dtype dtype);

/// The same of the rows of a ragged batch: below 2^34 bytes, which spread() needs.
bool is_spreadable(std::int64_t stride, int head_dim, Dtype dtype);

/// Whether tensor maps take the strides of a tensor, a ragged batch's or another; those of single elements do not
/// count.
bool has_mappable_strides(const attune_tensor& tensor, const Extents& extents, bool ragged);

/// The extents of one tensor, innermost first.
struct TensorExtents {
  int head_dim;
  int seqlen;
  int heads;
  int batch;
};

/// One of a call's tensors (strides of single elements are 0 there), moved in boxes of `rows` rows.
TensorDescription describe(const AttuneTensor& tensor, const TensorExtents& extents, Dtype dtype, int rows);

/// The rows of a ragged batch as its kernels have them (templates/blocks/ragged_tiles.cuh): dimensions head_dim, seqlen
/// of ATTUNE_SEQUENCE_END rows, heads, all rows and one more with the stride of seqlen, and one whose element
/// ATTUNE_SEQUENCE_END lies as many rows in front. The tensor is that of one sequence of all rows.
TensorDescription spread(const TensorDescription& tensor);

}  // namespace attune
