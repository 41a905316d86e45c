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

/// Whether the pages of a cache, pages x page_size x heads x head_dim, are rows of a tensor that spread() takes: pages
/// begin whole rows apart, fewer than 2^31 in all.
bool has_mappable_pages(const attune_tensor& tensor, const Extents& extents);

/// Whether rows of such a cache are fewer than 2^32 times 16 bytes apart, which kernels that gather them need.
bool has_near_pages(const attune_tensor& tensor, const Extents& extents);

/// One of a call's tensors (strides of single elements are 0 there), moved in boxes of `rows` rows.
TensorDescription describe(const AttuneTensor& tensor, const Extents& extents, int rows);

/// The rows of a ragged batch as its kernels have them (templates/blocks/ragged_tiles.cuh): dimensions head_dim, seqlen
/// of ATTUNE_SEQUENCE_END rows, heads, all rows and one more with the stride of seqlen, and one whose element
/// ATTUNE_SEQUENCE_END lies as many rows in front. The tensor is that of one sequence of all rows.
TensorDescription spread(const TensorDescription& tensor);

/// A cache as one sequence of rows, spread as a ragged batch's, moved in boxes of `rows` rows. Pages begin page_rows()
/// of them apart.
TensorDescription describe_pages(const AttuneTensor& tensor, const Extents& extents, int rows);

/// From the beginning of a page to that of the next, in rows of the cache's tensor.
int page_rows(const AttuneTensor& tensor);

}  // namespace attune
