// What a test sees of the fake libcuda.so.1: how it behaves, and what was asked of it.
#pragma once

#include <atomic>
#include <cstring>

#include "runtime/call/device.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"
#include "templates/check_params.h"
#include "templates/decode_params.h"
#include "templates/store_params.h"
#include "templates/tensor_params.h"
#include "templates/tile_list.h"

namespace attune::testing {

/// One launch as the driver got it.
struct FakeLaunch {
  Grid grid;
  unsigned block = 0;
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  void* kernel = nullptr;
  AttunePrefillParams params{};
  AttuneTileList tiles{};                     ///< of a kernel with a tile_list
  AttuneTensorPrefillParams tensor_params{};  ///< of a kernel that reads through tensor maps; `params` is its problem
  AttuneDecodeParams decode_params{};         ///< of decode's kernels
  AttuneStoreParams store_params{};           ///< of store_kv's
  AttuneMergeParams merge_params{};           ///< of merge_states'
  AttuneCheckParams check_params{};           ///< of check_tables'
  bool combines = false;                      ///< the second of decode's kernels
  bool overlaps = false;                      ///< may begin before the kernel before it has ended
};

/// What cuTensorMapEncodeTiled was told, in place of what a driver makes of it.
struct FakeTensorMap {
  int type = 0;
  TensorDescription tensor;

  static FakeTensorMap of(const AttuneTensorMap& map) {
    FakeTensorMap fake;
    std::memcpy(&fake, map.opaque, sizeof(fake));
    return fake;
  }
};
static_assert(sizeof(FakeTensorMap) <= sizeof(AttuneTensorMap));

/// Shared between the fake driver and the test, which resets it first.
struct FakeCuda {
  // How it behaves.
  std::atomic<int> current_device{-1};      ///< of threads that have set no context themselves; -1: no context
  std::atomic<bool> too_old{false};         ///< a driver that has none of the functions asked of it
  std::atomic<bool> refuse_fatbins{false};  ///< as a GPU for which they hold no code
  std::atomic<int> capability{90};
  std::atomic<int> fail_load{0};    ///< CUresult of the next load, once
  std::atomic<int> fail_launch{0};  ///< CUresult of every launch
  AttuneTableFault table_fault{};   ///< what check_tables finds
  std::atomic<bool> capturing{false};

  // What was asked of it.
  std::atomic<int> loads{0};
  std::atomic<int> unloads{0};
  std::atomic<int> launches{0};
  std::atomic<int> encoded_maps{0};
  std::atomic<int> warmed{0};           ///< functions loaded into a context
  std::atomic<int> unrelaxed_loads{0};  ///< loads outside the relaxed capture mode
  std::atomic<int> loaded_for{-1};      ///< device of the last cuKernelSetAttribute
  std::atomic<int> warmed_for{-1};      ///< device of the context that was current at the last cuFuncLoad
  std::atomic<int> shared_limit{0};     ///< its value
  FakeLaunch last_launch;               ///< only where one thread launches
  FakeLaunch second_launch;             ///< the one after it
  FakeLaunch third_launch;

  std::atomic<int> resets{0};

  void reset() {
    ++resets;  // and no thread has a context of its own any more
    current_device = -1;
    too_old = false;
    refuse_fatbins = false;
    capability = 90;
    fail_load = 0;
    fail_launch = 0;
    table_fault = {};
    capturing = false;
    loads = unloads = launches = encoded_maps = warmed = unrelaxed_loads = 0;
    loaded_for = warmed_for = -1;
    shared_limit = 0;
    last_launch = {};
    second_launch = {};
    third_launch = {};
  }
};

using FakeCudaState = FakeCuda*();  ///< fake_cuda_state
using FakeCaptureMode = int();      ///< fake_cuda_capture_mode: of the calling thread

}  // namespace attune::testing
