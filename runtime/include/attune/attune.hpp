// Attune for C++20: attune.h with values, ownership and exceptions. Header only; link to libattune.
//
//   namespace at = attune::api;
//   at::Attention attention;                                        // needs no GPU yet
//   attention({.shape = {.dtype = at::Dtype::bf16, .batch = 2, .seqlen_q = 1024, .seqlen_k = 1024,
//                        .heads_q = 32, .heads_kv = 8, .head_dim = 128, .causal = true},
//              .q = at::bshd(q, 1024, 32, 128),
//              .k = at::bshd(k, 1024, 8, 128),
//              .v = at::bshd(v, 1024, 8, 128),
//              .o = at::bshd(o, 1024, 32, 128)},
//             stream);
#ifndef ATTUNE_ATTUNE_HPP
#define ATTUNE_ATTUNE_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "attune/attune.h"
#include "attune/backward.hpp"
#include "attune/expressions.hpp"
#include "attune/tensors.hpp"

namespace attune::api {

/// A call that failed: why in words, and as a status.
class Error : public std::runtime_error {
 public:
  Error(attune_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  [[nodiscard]] attune_status status() const noexcept { return status_; }

 private:
  attune_status status_;
};

/// When to compile a kernel in process (attune_compile_policy says more).
enum class Compile {
  missing = ATTUNE_COMPILE_MISSING,  ///< only when no ready kernel serves the problem, or reads keys again and again
  frozen = ATTUNE_COMPILE_FROZEN,    ///< not at all: ready kernels and those on the disk
  exact = ATTUNE_COMPILE_EXACT,      ///< a kernel of the closest head_dim that its template has, unless one is ready
  background = ATTUNE_COMPILE_BACKGROUND,  ///< the same, but a kernel that pads head_dim serves meanwhile
};

enum class LogLevel { info = ATTUNE_LOG_INFO, warning = ATTUNE_LOG_WARNING };

/// Gets one line at a time, from any thread and from several at once; must not throw and not call the same Attention.
using Log = std::function<void(LogLevel level, const char* message)>;

/// Where kernels run.
enum class Device {
  cuda = ATTUNE_DEVICE_CUDA,
  emulator = ATTUNE_DEVICE_EMULATOR,  ///< the CPU: host memory, no streams, slow; every access is checked
};

struct Options {
  Compile compile = Compile::missing;
  std::string cache_dir = {};  ///< empty: $ATTUNE_CACHE_DIR, else $XDG_CACHE_HOME/attune, else ~/.cache/attune
  Device device = Device::cuda;
  std::uint64_t emulator_seed = 1;        ///< of the emulator's schedule
  Log log = nullptr;                      ///< null: stderr, which gets what $ATTUNE_LOG says (off, warning, info)
  std::vector<std::string> bundles = {};  ///< files that `attune pack` made: their kernels come before all others
};

/// One call: O = softmax(softmax_scale * Q K^T + mask) V.
struct Prefill {
  Shape shape;
  Tensor q{};
  Tensor k{};
  Tensor v{};
  Tensor o{};
  float* lse = nullptr;                               ///< batch x heads_q x seqlen_q, natural log; may be null
  std::optional<float> softmax_scale = std::nullopt;  ///< 1 / sqrt(head_dim) when not given
  std::optional<Ragged> ragged = std::nullopt;
  std::optional<Pages> pages = std::nullopt;  ///< of a ragged batch, too, whose cu_seqlens_k then does not count
  /// Attention::workspace() bytes, 16-byte aligned, with which some kernels are faster; none where fewer.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  Dropout dropout = {};  ///< p 0: none
  Expressions expressions = {};
  const void* sink = nullptr;  ///< heads_q, device memory: a logit of each head of q in the softmax of its rows
  bool sink_like_q = false;    ///< it has the dtype of q, and is not fp32

  /// The same for the C ABI.
  [[nodiscard]] attune_prefill_args args() const {
    attune_prefill_args result{};
    result.struct_size = sizeof(result);
    shape.set(result);
    result.dropout = dropout;
    result.q = q;
    result.k = k;
    result.v = v;
    result.o = o;
    result.lse = lse;
    result.softmax_scale = softmax_scale.value_or(usual_scale(shape.head_dim));
    if (ragged) ragged->set(result);
    if (pages) {
      result.block_table = pages->block_table;
      result.seqused_k = pages->seqused_k;
      result.table_width = pages->table_width;
      result.pages = pages->pages;
      result.page_size = pages->page_size;
    }
    result.workspace = workspace;
    result.workspace_bytes = workspace_bytes;
    expressions.set(result);
    result.sink = sink;
    result.sink_like_q = sink_like_q ? 1 : 0;
    return result;
  }
};

/// Which columns of a key make a pair that is rotated (rotary position embedding).
enum class Rotary {
  none = ATTUNE_ROTARY_NONE,
  interleaved = ATTUNE_ROTARY_INTERLEAVED,  ///< 2i and 2i + 1
  halves = ATTUNE_ROTARY_HALVES,            ///< i and i + rotary_dim / 2
};

/// What decode computes, pointers apart. The cache is pages of page_size tokens; a contiguous one is a page for each
/// sequence, of its length, with table_width 1.
struct DecodeShape {
  Dtype dtype = Dtype::bf16;
  std::int32_t batch = 1;
  std::int32_t seqlen_q = 1;  ///< at most 16; prefill takes more, of the same cache in pages
  std::int32_t heads_q = 1;   ///< at most 256 times heads_kv
  std::int32_t heads_kv = 1;
  std::int32_t head_dim = 128;    ///< at most 256; see Tensor
  std::int32_t max_seqlen_k = 1;  ///< at most table_width * page_size
  std::int32_t page_size = 1;
  std::int32_t pages = 1;
  std::int32_t table_width = 1;
  std::int32_t window_left = -1;  ///< keys that a query sees before its own position; -1: all
  std::int32_t window_right = 0;  ///< and after it; 0: causal, -1: all
  std::int32_t splits = 0;        ///< parts of each sequence's keys; 0: as many as are fastest
  float softcap = 0;              ///< scores x, scaled, become softcap * tanh(x / softcap); 0: they stay
  std::int32_t seqlen_new = 0;    ///< keys that the call appends to each sequence; max_seqlen_k is with them
  Rotary rotary = Rotary::none;   ///< of these keys and of the queries (attune_decode_args says to which positions)
  std::int32_t rotary_dim = 0;    ///< the first columns, which are rotated: a multiple of 16, at most head_dim
  std::int32_t rotations = 0;     ///< rows of rotary_cos and rotary_sin
  std::int32_t total_q = 0;       ///< rows of q and o where cu_seqlens_q says which of them a sequence has
  std::int32_t total_k = 0;       ///< rows of k and v where cu_seqlens_k says which of them a sequence has
};

/// One call of decode: attention of few queries to a cache. Query i of a sequence stands at i + seqlen_k - seqlen_q.
struct Decode {
  DecodeShape shape;
  Tensor q{};
  Tensor k{};  ///< pages x page_size x heads_kv x head_dim: bshd() or bhsd() with page_size for seqlen
  Tensor v{};
  Tensor o{};
  float* lse = nullptr;                       ///< batch x heads_q x seqlen_q, natural log; may be null
  const std::int32_t* seqlens_k = nullptr;    ///< batch, device memory, new keys apart; null: max_seqlen_k
  const std::int32_t* block_table = nullptr;  ///< batch x table_width, device memory; null: sequence i has page i
  void* workspace = nullptr;                  ///< Attention::workspace() bytes, 16-byte aligned
  std::size_t workspace_bytes = 0;
  std::optional<float> softmax_scale = std::nullopt;  ///< 1 / sqrt(head_dim) when not given
  Tensor k_new{};                                     ///< batch x seqlen_new x heads_kv x head_dim
  Tensor v_new{};
  const void* rotary_cos = nullptr;  ///< rotations x rotary_dim / 2, of the same dtype
  const void* rotary_sin = nullptr;
  bool check_tables = false;  ///< first checks all arrays of lengths and block_table, and waits for that
  const std::int32_t* cu_seqlens_q =
      nullptr;  ///< batch + 1, device memory: sequences of up to seqlen_q queries each, one
                ///< after the other, and lse is heads_q x total_q; null: all have seqlen_q
  const std::int32_t* cu_seqlens_k =
      nullptr;  ///< batch + 1, device memory, with cu_seqlens_q: k and v are total_k x heads_kv x head_dim, one
                ///< sequence after the other, of which the first seqlens_k keys count (null: all) and stride_batch,
                ///< page_size, pages and table_width do not; null: they are in a cache
  const std::int32_t* leftpad_k =
      nullptr;  ///< batch, device memory: where each sequence's first key stands, counted as seqlens_k counts; null: 0
  const std::int32_t* seqused_q = nullptr;  ///< batch, device memory, with cu_seqlens_q: how many of a sequence's
                                            ///< queries count, and no row of o and LSE after them is written; null: all
  Expressions expressions = {};
  const void* sink = nullptr;  ///< heads_q, device memory: a logit of each head of q in the softmax of its rows
  bool sink_like_q = false;    ///< it has the dtype of q, and is not fp32

  /// The same for the C ABI.
  [[nodiscard]] attune_decode_args args() const {
    attune_decode_args result{};
    result.struct_size = sizeof(result);
    result.dtype = static_cast<attune_dtype>(shape.dtype);
    result.q = q;
    result.k = k;
    result.v = v;
    result.o = o;
    result.lse = lse;
    result.seqlens_k = seqlens_k;
    result.block_table = block_table;
    result.workspace = workspace;
    result.workspace_bytes = workspace_bytes;
    result.batch = shape.batch;
    result.seqlen_q = shape.seqlen_q;
    result.heads_q = shape.heads_q;
    result.heads_kv = shape.heads_kv;
    result.head_dim = shape.head_dim;
    result.max_seqlen_k = shape.max_seqlen_k;
    result.page_size = shape.page_size;
    result.pages = shape.pages;
    result.table_width = shape.table_width;
    result.softmax_scale = softmax_scale.value_or(usual_scale(shape.head_dim));
    result.window_left = shape.window_left;
    result.window_right = shape.window_right;
    result.splits = shape.splits;
    result.softcap = shape.softcap;
    result.seqlen_new = shape.seqlen_new;
    result.k_new = k_new;
    result.v_new = v_new;
    result.rotary_cos = rotary_cos;
    result.rotary_sin = rotary_sin;
    result.rotary = static_cast<attune_rotary>(shape.rotary);
    result.rotary_dim = shape.rotary_dim;
    result.rotations = shape.rotations;
    result.check_tables = check_tables ? 1 : 0;
    result.cu_seqlens_q = cu_seqlens_q;
    result.total_q = shape.total_q;
    result.cu_seqlens_k = cu_seqlens_k;
    result.total_k = shape.total_k;
    result.leftpad_k = leftpad_k;
    result.seqused_q = seqused_q;
    expressions.set(result);
    result.sink = sink;
    result.sink_like_q = sink_like_q ? 1 : 0;
    return result;
  }
};

/// What store_kv writes, pointers apart; the cache as DecodeShape has it.
struct StoreShape {
  Dtype dtype = Dtype::bf16;
  std::int32_t batch = 1;
  std::int32_t tokens = 1;  ///< new ones, of each sequence
  std::int32_t heads_kv = 1;
  std::int32_t head_dim = 128;  ///< at most 256; see Tensor
  std::int32_t page_size = 1;
  std::int32_t pages = 1;
  std::int32_t table_width = 1;
  Rotary rotary = Rotary::none;
  std::int32_t rotary_dim = 0;  ///< the first columns, which are rotated: a multiple of 16, at most head_dim
  std::int32_t rotations = 0;   ///< rows of rotary_cos and rotary_sin
};

/// One call of store_kv: new keys and values into a cache (attune_store_kv_args says what may be null).
struct Store {
  StoreShape shape;
  Tensor k_new{};
  Tensor v_new{};
  Tensor k{};  ///< pages x page_size x heads_kv x head_dim: bshd() or bhsd() with page_size for seqlen
  Tensor v{};
  const std::int64_t* slot_mapping = nullptr;  ///< batch x tokens: page * page_size + place in the page; -1: nowhere
  const std::int32_t* seqlens_k = nullptr;     ///< batch: keys that are there already
  const std::int32_t* block_table = nullptr;   ///< batch x table_width
  const std::int32_t* positions = nullptr;     ///< batch x tokens; null: those after seqlens_k
  const void* rotary_cos = nullptr;            ///< rotations x rotary_dim / 2, of the same dtype
  const void* rotary_sin = nullptr;
  bool check_tables = false;  ///< first checks slot_mapping, or seqlens_k and block_table, and waits for that

  /// The same for the C ABI.
  [[nodiscard]] attune_store_kv_args args() const {
    attune_store_kv_args result{};
    result.struct_size = sizeof(result);
    result.dtype = static_cast<attune_dtype>(shape.dtype);
    result.k_new = k_new;
    result.v_new = v_new;
    result.k = k;
    result.v = v;
    result.slot_mapping = slot_mapping;
    result.seqlens_k = seqlens_k;
    result.block_table = block_table;
    result.positions = positions;
    result.rotary_cos = rotary_cos;
    result.rotary_sin = rotary_sin;
    result.batch = shape.batch;
    result.tokens = shape.tokens;
    result.heads_kv = shape.heads_kv;
    result.head_dim = shape.head_dim;
    result.page_size = shape.page_size;
    result.pages = shape.pages;
    result.table_width = shape.table_width;
    result.rotary = static_cast<attune_rotary>(shape.rotary);
    result.rotary_dim = shape.rotary_dim;
    result.rotations = shape.rotations;
    result.check_tables = check_tables ? 1 : 0;
    return result;
  }
};

/// What merge_states merges, pointers apart.
struct MergeShape {
  Dtype dtype = Dtype::bf16;
  std::int32_t batch = 1;
  std::int32_t seqlen = 1;
  std::int32_t heads = 1;
  std::int32_t head_dim = 128;  ///< a multiple of 8, at most 256
};

/// One call of merge_states: attention over some keys and over others into attention over all of them.
struct Merge {
  MergeShape shape;
  Tensor o1{};
  Tensor o2{};
  Tensor o{};                   ///< may be o1 or o2
  const float* lse1 = nullptr;  ///< batch x heads x seqlen, natural log
  const float* lse2 = nullptr;
  float* lse = nullptr;  ///< apart from both; may be null

  /// The same for the C ABI.
  [[nodiscard]] attune_merge_states_args args() const {
    attune_merge_states_args result{};
    result.struct_size = sizeof(result);
    result.dtype = static_cast<attune_dtype>(shape.dtype);
    result.o1 = o1;
    result.o2 = o2;
    result.o = o;
    result.lse1 = lse1;
    result.lse2 = lse2;
    result.lse = lse;
    result.batch = shape.batch;
    result.seqlen = shape.seqlen;
    result.heads = shape.heads;
    result.head_dim = shape.head_dim;
    return result;
  }
};

/// What rotary_embedding rotates, pointers apart.
struct RotaryShape {
  Dtype dtype = Dtype::bf16;
  std::int32_t batch = 1;
  std::int32_t seqlen = 1;
  std::int32_t heads_q = 1;
  std::int32_t heads_kv = 1;    ///< 0: there are no keys
  std::int32_t head_dim = 128;  ///< a multiple of 8, at most 256
  Rotary rotary = Rotary::halves;
  std::int32_t rotary_dim = 128;  ///< a multiple of 16, at most head_dim
  std::int32_t rotations = 1;     ///< rows at positions outside 0 to rotations - 1 stay as they are
};

/// One call of rotary_embedding: the first rotary_dim columns of queries and keys, in place.
struct RotaryEmbedding {
  RotaryShape shape;
  Tensor q{};
  Tensor k{};                               ///< apart from q
  const std::int32_t* positions = nullptr;  ///< batch x seqlen; null: offsets + i
  const std::int32_t* offsets = nullptr;    ///< batch; null: 0
  const void* rotary_cos = nullptr;         ///< rotations x rotary_dim / 2, 16-byte aligned
  const void* rotary_sin = nullptr;

  /// The same for the C ABI.
  [[nodiscard]] attune_rotary_embedding_args args() const {
    attune_rotary_embedding_args result{};
    result.struct_size = sizeof(result);
    result.dtype = static_cast<attune_dtype>(shape.dtype);
    result.q = q;
    result.k = k;
    result.positions = positions;
    result.offsets = offsets;
    result.rotary_cos = rotary_cos;
    result.rotary_sin = rotary_sin;
    result.batch = shape.batch;
    result.seqlen = shape.seqlen;
    result.heads_q = shape.heads_q;
    result.heads_kv = shape.heads_kv;
    result.head_dim = shape.head_dim;
    result.rotary = static_cast<attune_rotary>(shape.rotary);
    result.rotary_dim = shape.rotary_dim;
    result.rotations = shape.rotations;
    return result;
  }
};

/// A call of any operation, to be prepared.
using AnyCall = std::variant<Prefill, Decode, Store, Merge, RotaryEmbedding, Backward>;

/// How far Attention::prepare_all() has come; its texts are gone when the callback returns.
using Progress = attune_prepare_progress;

/// Which kernel serves a call, by name, and which is being compiled to take over; empty where there is none.
struct Serving {
  std::string now;
  std::string coming;
};

/// What an Attention has done since it was made.
using Counters = attune_counters;

/// A registry of kernels, ready to be called. Thread-safe; no lock and no allocation once a problem's
/// kernel has been loaded. Destroy it after the work it launched has finished.
class Attention {
 public:
  /// Throws Error. Needs no GPU: the driver is opened on first need.
  explicit Attention(const Options& options = {}) {
    attune_options raw{};
    raw.struct_size = sizeof(raw);
    raw.compile_policy = static_cast<attune_compile_policy>(options.compile);
    raw.cache_dir = options.cache_dir.empty() ? nullptr : options.cache_dir.c_str();
    raw.device = static_cast<attune_device>(options.device);
    raw.emulator_seed = options.emulator_seed;
    std::vector<const char*> bundles;
    for (const std::string& file : options.bundles) bundles.push_back(file.c_str());
    raw.bundles = bundles.data();
    raw.bundle_count = bundles.size();
    if (options.log) {
      log_ = std::make_unique<Log>(options.log);
      raw.log = [](void* user, attune_log_level level, const char* message) {
        (*static_cast<const Log*>(user))(static_cast<LogLevel>(level), message);
      };
      raw.log_user = log_.get();
    }
    attune_registry* registry = nullptr;
    check(attune_registry_create(&raw, &registry));
    registry_.reset(registry);
  }

  /// Launches on `stream` (a CUstream or cudaStream_t; null is the legacy default stream) of the current CUDA
  /// context and returns once the kernel is queued. May be captured in a graph. Throws Error.
  void operator()(const Prefill& call, void* stream = nullptr) const { launch(&attune_prefill, call, stream); }

  /// Everything the call does short of the launch: before a graph capture or a first request. Throws Error.
  void prepare(const Prefill& call) const { make_ready(&attune_prefill_prepare, call); }

  /// The same for decode.
  void operator()(const Decode& call, void* stream = nullptr) const { launch(&attune_decode, call, stream); }
  void prepare(const Decode& call) const { make_ready(&attune_decode_prepare, call); }

  /// The same for the others.
  void operator()(const Store& call, void* stream = nullptr) const { launch(&attune_store_kv, call, stream); }
  void prepare(const Store& call) const { make_ready(&attune_store_kv_prepare, call); }
  void operator()(const Merge& call, void* stream = nullptr) const { launch(&attune_merge_states, call, stream); }
  void prepare(const Merge& call) const { make_ready(&attune_merge_states_prepare, call); }
  void operator()(const RotaryEmbedding& call, void* stream = nullptr) const {
    launch(&attune_rotary_embedding, call, stream);
  }
  void prepare(const RotaryEmbedding& call) const { make_ready(&attune_rotary_embedding_prepare, call); }
  /// The gradients of a prefill, by a name of their own, so that a braced call of operator() is one of a Prefill.
  void backward(const Backward& call, void* stream = nullptr) const { launch(&attune_backward, call, stream); }
  void prepare_backward(const Backward& call) const { make_ready(&attune_backward_prepare, call); }

  /// Prepares many calls side by side on up to `threads` threads (0: one for each core). `on_progress`, which may be
  /// null, is called from any thread, but from one at a time. All calls are tried; throws the Error of the first that
  /// failed, or what `on_progress` threw.
  void prepare_all(const std::vector<AnyCall>& calls, int threads = 0,
                   const std::function<void(const Progress&)>& on_progress = nullptr) const {
    using Args = std::variant<attune_prefill_args, attune_decode_args, attune_store_kv_args, attune_merge_states_args,
                              attune_rotary_embedding_args, attune_backward_args>;
    std::vector<Args> args;
    args.reserve(calls.size());
    std::vector<attune_prepare_item> items;
    items.reserve(calls.size());
    for (const AnyCall& call : calls) {
      args.push_back(std::visit([](const auto& one) { return Args(one.args()); }, call));
      // The operations are numbered as AnyCall has them.
      items.push_back({static_cast<attune_operation>(call.index()),
                       std::visit([](const auto& one) -> const void* { return &one; }, args.back())});
    }
    struct Report {
      const std::function<void(const Progress&)>& tell;
      std::exception_ptr thrown;
    } report{on_progress, nullptr};
    const attune_prepare_callback tell = [](void* user, const attune_prepare_progress* progress) {
      Report& to = *static_cast<Report*>(user);
      try {
        if (!to.thrown) to.tell(*progress);
      } catch (...) {
        to.thrown = std::current_exception();
      }
    };
    const attune_status status =
        attune_prepare_all(registry_.get(), items.data(), items.size(), threads, on_progress ? tell : nullptr, &report);
    if (report.thrown) std::rethrow_exception(report.thrown);
    check(status);
  }

  [[nodiscard]] Counters counters() const {
    Counters result{};
    result.struct_size = sizeof(result);
    check(attune_registry_counters(registry_.get(), &result));
    return result;
  }

  /// What serves such a call now, on the GPU of the current context. Loads nothing. Throws Error.
  [[nodiscard]] Serving serving(const AnyCall& call) const {
    attune_serving found{};
    found.struct_size = sizeof(found);
    const auto ask = [&](const auto& one) {
      const auto args = one.args();
      check(attune_registry_serving(registry_.get(), static_cast<attune_operation>(call.index()), &args, &found));
    };
    std::visit(ask, call);
    return {.now = found.now, .coming = found.coming};
  }

  /// Before a process exits that keeps this until then: drops what is to be compiled in the background, waits for the
  /// kernel that is being compiled, and brings the record of $ATTUNE_RECORD up to date.
  void finish() const { check(attune_registry_finish(registry_.get())); }

  /// Bytes of workspace that a call of this shape makes use of, often none; its pointers are not read. Throws Error.
  [[nodiscard]] std::size_t workspace(const Prefill& call) const { return bytes_of(&attune_prefill_workspace, call); }

  /// Bytes of workspace that a call of this shape needs; its pointers are not looked at. Throws Error.
  [[nodiscard]] std::size_t workspace(const Decode& call) const { return bytes_of(&attune_decode_workspace, call); }
  /// Likewise. Strides count of tensors that have data.
  [[nodiscard]] std::size_t backward_workspace(const Backward& call) const {
    return bytes_of(&attune_backward_workspace, call);
  }

 private:
  struct Destroy {
    void operator()(attune_registry* registry) const { attune_registry_destroy(registry); }
  };

  template <class Args, class Call>
  void launch(attune_status (*function)(attune_registry*, const Args*, void*), const Call& call, void* stream) const {
    const Args args = call.args();
    check(function(registry_.get(), &args, stream));
  }

  template <class Args, class Call>
  void make_ready(attune_status (*function)(attune_registry*, const Args*), const Call& call) const {
    const Args args = call.args();
    check(function(registry_.get(), &args));
  }

  template <class Args, class Call>
  std::size_t bytes_of(attune_status (*function)(attune_registry*, const Args*, std::size_t*), const Call& call) const {
    const Args args = call.args();
    std::size_t bytes = 0;
    check(function(registry_.get(), &args, &bytes));
    return bytes;
  }

  static void check(attune_status status) {
    if (status != ATTUNE_OK) throw Error(status, attune_last_error());
  }

  std::unique_ptr<Log> log_;  // outlives the registry
  std::unique_ptr<attune_registry, Destroy> registry_;
};

}  // namespace attune::api

#endif
