#include "runtime/execute/emulated.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "runtime/base/error.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/emulator/tensor_map.hpp"
#include "runtime/execute/chunk_emulated.hpp"
#include "runtime/execute/decode_emulated.hpp"
#include "runtime/execute/emulated_buffers.hpp"
#include "runtime/operations/decode/arguments.hpp"
#include "runtime/operations/prefill/arguments.hpp"
#include "runtime/operations/prefill/plan.hpp"
#include "runtime/operations/prefill/tensor_maps.hpp"

namespace attune {
namespace {

using Use = EmulatedBuffers::Use;

constexpr std::uint64_t any_launch = 0x9e3779b97f4a7c15U;

EmulatedBuffers tensors_of(const attune_prefill_args& args, const Problem& problem) {
  const AttunePrefillParams params = make_params(args, problem);  // strides of single elements are 0 there
  const int sequences = problem.stored_sequences();
  const int key_sequences = problem.stored_key_sequences();
  const int rows = problem.stored_rows();
  const int keys = problem.stored_keys();
  EmulatedBuffers buffers(problem.dtype);
  buffers.add_tensor("q", params.q, {sequences, rows, problem.heads_q, problem.head_dim}, Use::read);
  buffers.add_tensor("k", params.k, {key_sequences, keys, problem.heads_kv, problem.head_dim}, Use::read);
  buffers.add_tensor("v", params.v, {key_sequences, keys, problem.heads_kv, problem.head_dim_of_v()}, Use::read);
  buffers.add_tensor("o", params.o, {sequences, rows, problem.heads_q, problem.head_dim_of_v()}, Use::written);
  buffers.add_array("lse", params.lse, {1, sequences, problem.heads_q, rows}, Use::written);
  buffers.add_array("cu_seqlens_q", params.cu_seqlens_q, {1, 1, 1, problem.batch + 1LL}, Use::read);
  buffers.add_array("cu_seqlens_k", params.cu_seqlens_k, {1, 1, 1, problem.batch + 1LL}, Use::read);
  buffers.add_array("seqused_k", params.seqused_k, {1, 1, 1, problem.batch}, Use::read);
  buffers.add_array("seqused_q", params.seqused_q, {1, 1, 1, problem.batch}, Use::read);
  const long long table_entries = static_cast<long long>(problem.batch) * problem.table_width;
  buffers.add_array("block_table", params.block_table, {1, 1, 1, table_entries}, Use::read);
  return buffers;
}

}  // namespace

std::vector<emulator::Buffer> buffers_of(const attune_prefill_args& args, const Problem& problem) {
  return tensors_of(args, problem).take();
}

EmulatedParams::EmulatedParams(const attune_prefill_args& args, const Problem& problem, const Plan& plan)
    : params_(make_params(args, problem)), used_(&params_) {
  if (!family_of(plan.variant).tensor_maps) return;
  const auto encode = [](const TensorDescription& tensor) {
    return emulator::emulated_map({.base = tensor.base,
                                   .rank = tensor.rank,
                                   .extents = tensor.extents,
                                   .strides = tensor.strides,
                                   .box = tensor.box});
  };
  const AttuneTensorPrefillParams block = make_tensor_params(params_, plan, encode);
  if (plan.variant.stream_k != 0) {
    shared_ = make_shared_params(block, plan, workspace_of(args, any_launch));
    signals_ = plan.sharing_warps();
    used_ = &shared_;
  } else {
    listed_ = {block, plan.tiles == nullptr ? AttuneTileList{} : *plan.tiles};
    used_ = &listed_;
  }
}

std::vector<emulator::Buffer> EmulatedParams::memory(const attune_prefill_args& args, const Problem& problem) const {
  EmulatedBuffers buffers = tensors_of(args, problem);
  const long long partials =
      shared_.partials == nullptr ? 0 : reinterpret_cast<float*>(shared_.signals) - shared_.partials;
  buffers.add_array("partials", shared_.partials, {1, 1, 1, partials}, Use::written);
  buffers.add_array("signals", shared_.signals, {1, 1, 1, signals_}, Use::written);
  return std::move(buffers).take();
}

emulator::Report run_emulated(const emulator::Kernel& kernel, const Variant& variant, const attune_prefill_args& args,
                              const Problem& problem, const EmulatedRun& how) {
  const Plan launch = plan(variant, problem, emulator::device());
  if (launch.grid.blocks() == 0) return {};
  const EmulatedParams params(args, problem, launch);
  return kernel.run({.grid = launch.grid,
                     .threads = launch.threads,
                     .shared_bytes = launch.shared_bytes,
                     .params = params.get(),
                     .memory = params.memory(args, problem),
                     .seed = how.seed,
                     .jobs = how.jobs,
                     .count_banks = how.count_banks});
}

CacheKey emulator_key(const emulator::HostCompiler& compiler, const Source& source) {
  return cache_key(source, emulator_arch, emulator::host_options(), compiler.identity() + "\n" + emulator::seam_text());
}

Compiled compile_cached(const emulator::HostCompiler& compiler, const Source& source, const Cache& cache) {
  return cache.find_or_build(emulator_key(compiler, source), source, [&] { return compiler.compile(source); });
}

const emulator::HostCompiler& EmulatedKernels::open_compiler() {
  const std::lock_guard lock(compiler_mutex_);
  if (compiler_ == nullptr) compiler_ = std::make_unique<emulator::HostCompiler>();
  return *compiler_;
}

std::unique_ptr<const EmulatedKernels::Made> EmulatedKernels::make(const Variant& variant) {
  const Source source = generate(variant);
  const emulator::HostCompiler& compiler = open_compiler();
  const CacheKey key = emulator_key(compiler, source);
  std::optional<Compiled> compiled;
  bool built = false;
  if (policy_ == ATTUNE_COMPILE_FROZEN) {
    compiled = cache_.find(key);
    if (!compiled) {
      throw Error(ATTUNE_NOT_COMPILED, fmt::format("the compile policy is ATTUNE_COMPILE_FROZEN, and {} is not in the "
                                                   "cache ({}), the emulator's only source of kernels then",
                                                   variant.name(), cache_.root().string()));
    }
  } else {
    compiled = cache_.find_or_build(key, source, [&] {
      Compiled result = compiler.compile(source);
      counters_.count_compile(result.seconds);
      built = true;
      return result;
    });
  }
  auto made = std::make_unique<const Made>(Made{variant, emulator::Kernel(compiled->image, source.name)});
  counters_.bytes_loaded += compiled->image.size();
  if (!built) ++counters_.disk_loads;
  return made;
}

template <class AnyProblem>
Variant EmulatedKernels::choice(const AnyProblem& problem) const {
  const Device device = emulator::device();
  const ReadyChoice choice = choose_ready(ready_, problem, device, policy_);
  return choice.preferred ? choice.kernel->variant : variant_to_generate(problem, device);
}

template <class AnyProblem>
std::string EmulatedKernels::serving(const AnyProblem& problem) const {
  const Made* made = kernels_.find(choice(problem));
  return made == nullptr ? "" : made->variant.name();
}

template std::string EmulatedKernels::serving(const Problem&) const;
template std::string EmulatedKernels::serving(const DecodeProblem&) const;
template std::string EmulatedKernels::serving(const StoreProblem&) const;
template std::string EmulatedKernels::serving(const MergeProblem&) const;

template <class AnyProblem>
const EmulatedKernels::Made& EmulatedKernels::kernel_for(const AnyProblem& problem) {
  const Variant variant = choice(problem);
  if (const Made* made = kernels_.find(variant)) {
    counters_.hit();
    return *made;
  }
  ++counters_.misses;
  try {
    return *kernels_.get(variant, [&] { return make(variant); });
  } catch (...) {
    ++counters_.failures;
    throw;
  }
}

void EmulatedKernels::prepare(const Problem& problem) { kernel_for(problem); }

std::size_t EmulatedKernels::prefill_workspace(const Problem& problem) const {
  return plan(choice(problem), problem, emulator::device()).workspace_bytes;
}

DecodePlan EmulatedKernels::decode_plan(const DecodeProblem& problem) {
  return plan(kernel_for(problem).variant, problem, emulator::device());
}

void EmulatedKernels::prepare(const DecodeProblem& problem) {
  const DecodePlan planned = decode_plan(problem);
  if (planned.combines()) kernel_for(problem.merge());
  if (problem.appends()) kernel_for(problem.store());
}

void EmulatedKernels::decode(const attune_decode_args& args, const DecodeProblem& problem) {
  const DecodePlan planned = decode_plan(problem);
  check_workspace(args, planned);
  DecodeKernels kernels;
  kernels.decode = &kernel_for(problem).kernel;
  if (!is_empty(problem.store())) {
    const auto& [variant, kernel] = kernel_for(problem.store());
    kernels.store = &kernel;
    kernels.store_variant = variant;
  }
  if (planned.combines()) {
    const auto& [variant, kernel] = kernel_for(problem.merge());
    kernels.combine = &kernel;
    kernels.combine_variant = variant;
  }
  const emulator::Report report = run_emulated(kernels, args, problem, planned, {.seed = seed_});
  if (!report.ok()) throw Error(ATTUNE_KERNEL_FAULT, report.fault);
}

void EmulatedKernels::prepare(const StoreProblem& problem) { kernel_for(problem); }

void EmulatedKernels::prepare(const MergeProblem& problem) { kernel_for(problem); }

void EmulatedKernels::prepare(const CheckProblem& problem) { kernel_for(problem); }

void EmulatedKernels::check(const AttuneCheckParams& params) {
  const auto& [variant, kernel] = kernel_for(CheckProblem{});
  AttuneTableFault fault{};
  const emulator::Report report = run_emulated(kernel, variant, params, fault, {.seed = seed_});
  if (!report.ok()) throw Error(ATTUNE_KERNEL_FAULT, report.fault);
  throw_fault(params, fault, [](void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); });
}

template <class Args, class AnyProblem>
void EmulatedKernels::run(const Args& args, const AnyProblem& problem) {
  const auto& [variant, kernel] = kernel_for(problem);
  const emulator::Report report = run_emulated(kernel, variant, args, problem, {.seed = seed_});
  if (!report.ok()) throw Error(ATTUNE_KERNEL_FAULT, report.fault);
}

void EmulatedKernels::prefill(const attune_prefill_args& args, const Problem& problem) { run(args, problem); }

void EmulatedKernels::store_kv(const attune_store_kv_args& args, const StoreProblem& problem) { run(args, problem); }

void EmulatedKernels::merge_states(const attune_merge_states_args& args, const MergeProblem& problem) {
  run(args, problem);
}

}  // namespace attune
