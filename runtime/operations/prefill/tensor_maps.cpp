#include "runtime/operations/prefill/tensor_maps.hpp"

#include <cstdint>
#include <utility>

namespace attune {

TensorDescription pack(const TensorDescription& tensor, int ratio) {
  TensorDescription packed = tensor;
  std::swap(packed.extents[1], packed.extents[2]);
  std::swap(packed.strides[0], packed.strides[1]);
  const auto heads = static_cast<std::uint32_t>(ratio);
  packed.box = {tensor.box[0], heads, tensor.box[1] / heads, tensor.box[3], 1};
  return packed;
}

AttuneSharedPrefillParams make_shared_params(const AttuneTensorPrefillParams& block, const PrefillPlan& plan,
                                             const Workspace& workspace) {
  AttuneSharedPrefillParams shared{block, 0, 0, 0, nullptr, nullptr, workspace.launch};
  if (plan.workspace_bytes == 0 || workspace.data == nullptr || workspace.bytes < plan.workspace_bytes) {
    shared.whole_tiles = plan.shares.tiles;
    return shared;
  }
  // The words stand after the partials, whose sizes are multiples of theirs.
  const std::size_t words = static_cast<std::size_t>(plan.sharing_warps()) * sizeof(std::uint64_t);
  auto* const partials = static_cast<std::byte*>(workspace.data);
  shared.whole_tiles = plan.shares.whole_tiles;
  shared.share = plan.shares.share;
  shared.longer_shares = plan.shares.longer_shares;
  shared.partials = reinterpret_cast<float*>(partials);
  shared.signals = reinterpret_cast<unsigned long long*>(partials + plan.workspace_bytes - words);
  return shared;
}

}  // namespace attune
