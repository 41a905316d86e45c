#include "runtime/python/tools.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "attune/attune.h"
#include "generator/expression/pool.hpp"
#include "runtime/base/error.hpp"
#include "runtime/cache/cache.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/field_checks.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/choice/choice.hpp"
#include "runtime/choice/explain.hpp"
#include "runtime/choice/tuned_devices.hpp"
#include "runtime/compiler/compile.hpp"
#include "runtime/gpu/driver.hpp"
#include "runtime/lab/arguments.hpp"
#include "runtime/python/errors.hpp"
#include "runtime/python/expressions.hpp"
#include "runtime/python/gil.hpp"
#include "runtime/python/operands.hpp"
#include "runtime/python/registries.hpp"

namespace nb = nanobind;

namespace attune::python {
namespace {

/// Batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v.
using Sizes = std::array<std::int32_t, 7>;

/// An address for arrays that nobody reads.
alignas(16) char nowhere[16];

/// Of an array that expressions look up: name, whether its elements are real numbers, shape.
using ParamShape = std::tuple<std::string, bool, std::vector<std::int64_t>>;

/// What a call does to its scores, as it is told.
struct Scores {
  bool causal;
  nb::handle window_size;
  nb::handle softcap;
  nb::handle score;  ///< texts, or None
  nb::handle mask;
  std::vector<ParamShape> params;  ///< none where the texts say what they look up
};

/// Throws Error{ATTUNE_INVALID_ARGUMENT} where arrays are given that are not as the problem's expressions have them.
void check_params(const Problem& problem, const std::vector<ParamShape>& params) {
  if (params.empty()) return;
  std::vector<attune_named_array> arrays;
  for (const auto& [name, is_real, shape] : params) {
    attune_named_array& array = arrays.emplace_back();
    array = {.name = name.c_str(),
             .data = nowhere,
             .element = is_real ? ATTUNE_FP32 : ATTUNE_INT32,
             .rank = static_cast<std::int32_t>(shape.size()),
             .extents = {}};
    std::copy_n(shape.begin(), std::min(shape.size(), std::size(array.extents)), array.extents);
  }
  std::vector<std::string> found;
  check_expressions(found, {.params = arrays.data(), .count = static_cast<int>(arrays.size())}, problem.expressions,
                    expression_extents(problem));
  if (!found.empty()) throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
}

Problem problem_of(bool bf16, const Sizes& sizes, const Scores& scores) {
  const Window window = window_of(scores.window_size);
  Problem problem{.dtype = bf16 ? Dtype::bf16 : Dtype::fp16,
                  .batch = sizes[0],
                  .heads_q = sizes[3],
                  .heads_kv = sizes[4],
                  .seqlen_q = sizes[1],
                  .seqlen_k = sizes[2],
                  .head_dim = sizes[5],
                  .head_dim_v = sizes[6] == sizes[5] ? 0 : sizes[6],
                  .causal = scores.causal,
                  .window_left = window.left,
                  .window_right = window.right,
                  .softcap = static_cast<float>(number("softcap", scores.softcap))};
  if (const auto found = problems_of(problem); !found.empty()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, fmt::format("{}", fmt::join(found, "\n")));
  }
  std::string score;
  std::string mask;
  const bool has_score = read_text("score", scores.score, score);
  const bool has_mask = read_text("mask", scores.mask, mask);
  express(problem, {.score = has_score ? score.c_str() : nullptr, .mask = has_mask ? mask.c_str() : nullptr});
  check_params(problem, scores.params);
  return problem;
}

/// Where a problem is to be served: in the emulator, on a GPU that need not be here, or on one that is.
struct Target {
  bool emulator = false;
  std::optional<Device> elsewhere;  ///< a GPU that need not be here; nothing: one of this machine
  int ordinal = 0;                  ///< of that one
};

/// Kept for the life of the process, as the primary contexts are that it makes current.
const Driver& driver() {
  static const Driver* const opened = new Driver();
  return *opened;
}

/// Of this machine: that ordinal, else the current one, else the first.
int gpu_ordinal(std::optional<int> ordinal) {
  try {
    if (driver().device_count() == 0) throw Error(ATTUNE_NO_DEVICE, "the NVIDIA driver reports no GPU");
    return ordinal ? *ordinal : driver().current_device().value_or(0);
  } catch (const Error& error) {
    if (error.status() != ATTUNE_NO_DEVICE) throw;
    throw Error(ATTUNE_NO_DEVICE, fmt::format("no GPU here ({}); name one by arch, 'h200' say", error.what()));
  }
}

/// Without a name a GPU of this machine.
Target target_of(const std::optional<std::string>& name, std::optional<int> ordinal) {
  if (name && *name == emulator_arch) return {.emulator = true, .elsewhere = {}};
  if (name) {
    if (std::optional<Device> device = find_gpu_device(*name)) return {.elsewhere = std::move(device)};
    throw Error(ATTUNE_INVALID_ARGUMENT,
                fmt::format("arch is '{}'; it must be {} or {}", *name, fmt::join(gpu_words(), ", "), emulator_arch));
  }
  return {.elsewhere = {}, .ordinal = gpu_ordinal(ordinal)};
}

Explanation explain_at(const Target& target, const Problem& problem) {
  if (target.emulator) return explain_emulated(problem);
  const ReadyKernels ready;
  return explain(problem, target.elsewhere ? *target.elsewhere : driver().device(target.ordinal), ready,
                 default_tuned_tables(ready));
}

nb::tuple texts(const std::vector<std::string>& lines) {
  nb::list list;
  for (const std::string& line : lines) list.append(line);
  return nb::tuple(list);
}

/// A call of a problem over memory that nobody reads.
struct CallOverNothing {
  std::vector<attune_named_array> params;
  attune_prefill_args args;  ///< which point to them

  explicit CallOverNothing(const Problem& problem)
      : params(stand_ins(problem.expressions, expression_extents(problem), nowhere)), args(arguments_of(problem)) {
    args.q = tensor(problem.seqlen_q, problem.heads_q, problem.head_dim);
    args.k = tensor(problem.seqlen_k, problem.heads_kv, problem.head_dim);
    args.v = tensor(problem.seqlen_k, problem.heads_kv, problem.head_dim_of_v());
    args.o = tensor(problem.seqlen_q, problem.heads_q, problem.head_dim_of_v());
    const auto& [score, mask, sink] = problem.expressions;
    if (score != 0) args.score = expression::text_of_number(score).data();
    if (mask != 0) args.mask = expression::text_of_number(mask).data();
    args.params = params.data();
    args.param_count = static_cast<std::int32_t>(params.size());
  }
  CallOverNothing(const CallOverNothing&) = delete;
  CallOverNothing& operator=(const CallOverNothing&) = delete;

 private:
  static attune_tensor tensor(std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
    const std::int64_t columns = padded_head_dim(head_dim);
    return {nowhere, seqlen * heads * columns, heads * columns, columns};
  }
};

/// What this process has loaded for the problem so far, in the emulator or in the current context.
attune_serving serving_at(const Target& target, const Problem& problem) {
  attune_serving serving{};
  serving.struct_size = sizeof(serving);
  if (!target.emulator && (target.elsewhere || driver().current_device() != target.ordinal)) return serving;
  const CallOverNothing call(problem);
  check(attune_registry_serving(registry_of(target.emulator), ATTUNE_PREFILL, &call.args, &serving));
  return serving;
}

nb::object name_or_none(const char* name) { return *name == '\0' ? nb::object(nb::none()) : nb::object(nb::str(name)); }

nb::dict facts(const Explanation& explained, const attune_serving& serving) {
  nb::dict result;
  result["problem"] = explained.problem;
  result["device"] = explained.device.name;
  result["variant"] = explained.serving.variant.name();
  result["source"] = std::string(origin_text(explained.serving.origin));
  result["frozen"] = nb::none();
  if (const auto& frozen = explained.serving.frozen) result["frozen"] = frozen->name();
  result["grid"] = nb::none();
  result["threads"] = nb::none();
  result["shared_bytes"] = nb::none();
  if (const auto& launch = explained.launch) {
    result["grid"] = nb::make_tuple(launch->grid.x, launch->grid.y, launch->grid.z);
    result["threads"] = launch->threads;
    result["shared_bytes"] = launch->shared_bytes;
  }
  result["refusals"] = texts(explained.refusals);
  nb::dict considered;
  for (const Considered& one : explained.considered) considered[one.variant.name().c_str()] = texts(one.refusals);
  result["considered"] = considered;
  result["loaded"] = name_or_none(serving.now);
  result["coming"] = name_or_none(serving.coming);
  result["text"] = explained.text("see .considered");
  return result;
}

/// The same, but where no GPU is the one that a person most likely means.
Target explained_target(const std::optional<std::string>& name, std::optional<int> ordinal) {
  try {
    return target_of(name, ordinal);
  } catch (const Error& error) {
    if (error.status() != ATTUNE_NO_DEVICE || ordinal) throw;
    return {.elsewhere = find_gpu_device(usual_gpu)};
  }
}

nb::dict explain_problem(bool bf16, const Sizes& sizes, bool causal, nb::handle window_size, nb::handle softcap,
                         nb::handle score, nb::handle mask, const std::vector<ParamShape>& params,
                         const std::optional<std::string>& arch, std::optional<int> ordinal) {
  const Problem problem = problem_of(bf16, sizes, {causal, window_size, softcap, score, mask, params});
  const Target target = explained_target(arch, ordinal);
  const Explanation explained = explain_at(target, problem);
  return facts(explained, explained.served() ? serving_at(target, problem) : attune_serving{});
}

/// Loads the kernel into a GPU's context. A thread that had no context keeps it, as after any first use of CUDA.
attune_status prepare_on_gpu(int ordinal, const attune_prefill_args& args) {
  attune_registry* const registry = registry_of(false);
  const std::optional<int> before = driver().current_device();
  if (before != ordinal) driver().make_current(ordinal);
  const attune_status status = attune_prefill_prepare(registry, &args);
  if (before && before != ordinal) driver().make_current(*before);
  return status;
}

/// Leaves the kernels that are not ready where a registry on that GPU will look for them.
void compile_to_disk(const Explanation& explained) {
  std::vector<Variant> missing;
  const auto add = [&](const Served& serving) {
    if (serving.origin == Origin::nvrtc) missing.push_back(serving.variant);
  };
  add(explained.serving);
  for (const OtherLaunch& other : explained.others) add(other.serving);
  if (missing.empty()) return;
  const Cache cache(default_cache_root());
  if (cache.root().empty()) {
    throw Error(ATTUNE_INVALID_ARGUMENT, "there is no cache folder to compile to: set ATTUNE_CACHE_DIR or HOME");
  }
  const Compiler compiler;
  const int capability = explained.device.capability;
  for (const Variant& variant : missing) {
    const Source source = generate(variant);
    cache.find_or_build(cache_key(variant, capability, compiler.identity()), source,
                        [&] { return compiler.compile(source, capability); });
  }
}

std::string make_ready(const Problem& problem, const std::optional<std::string>& arch, std::optional<int> ordinal) {
  const WithoutGil released;
  const RunningCall running;
  const Target target = target_of(arch, ordinal);
  const Explanation explained = explain_at(target, problem);
  if (!explained.served()) {
    throw Error(ATTUNE_UNSUPPORTED, fmt::format("no kernel can serve {} on {}: {}", problem.text(),
                                                explained.device.name, fmt::join(explained.refusals, "; ")));
  }
  if (target.elsewhere) {
    compile_to_disk(explained);
    return explained.serving.variant.name();
  }
  const CallOverNothing call(problem);
  check(target.emulator ? attune_prefill_prepare(registry_of(true), &call.args)
                        : prepare_on_gpu(target.ordinal, call.args));
  return explained.serving.variant.name();
}

std::string jit(bool bf16, const Sizes& sizes, bool causal, nb::handle window_size, nb::handle softcap,
                nb::handle score, nb::handle mask, const std::vector<ParamShape>& params,
                const std::optional<std::string>& arch, std::optional<int> ordinal) {
  const Problem problem = problem_of(bf16, sizes, {causal, window_size, softcap, score, mask, params});
  try {
    return make_ready(problem, arch, ordinal);
  } catch (const Error&) {
    raise_interruptions();
    throw;
  }
}

attune_counters counted_by(attune_registry* registry) {
  attune_counters counted{};
  counted.struct_size = sizeof(counted);
  check(attune_registry_counters(registry, &counted));
  return counted;
}

attune_counters sum(attune_counters one, const attune_counters& other) {
  one.hits += other.hits;
  one.misses += other.misses;
  one.ready_loads += other.ready_loads;
  one.disk_loads += other.disk_loads;
  one.compiles += other.compiles;
  one.compile_ms += other.compile_ms;
  one.bytes_loaded += other.bytes_loaded;
  one.fallbacks += other.fallbacks;
  one.swaps += other.swaps;
  one.failures += other.failures;
  one.pending += other.pending;
  return one;
}

/// Of GPUs, of the emulator, or of both.
nb::dict counters(std::optional<bool> emulator) {
  attune_counters counted = counted_by(registry_of(emulator.value_or(false)));
  attune_registry* const other = emulator ? nullptr : opened_registry(true);
  if (other != nullptr) counted = sum(counted, counted_by(other));
  nb::dict result;
  result["hits"] = counted.hits;
  result["misses"] = counted.misses;
  result["ready_loads"] = counted.ready_loads;
  result["disk_loads"] = counted.disk_loads;
  result["compiles"] = counted.compiles;
  result["compile_ms"] = counted.compile_ms;
  result["bytes_loaded"] = counted.bytes_loaded;
  result["fallbacks"] = counted.fallbacks;
  result["swaps"] = counted.swaps;
  result["failures"] = counted.failures;
  result["pending"] = counted.pending;
  return result;
}

nb::list cache_list() {
  std::vector<CacheEntry> entries;
  {
    const WithoutGil released;
    entries = Cache(default_cache_root()).list();
  }
  nb::list rows;
  for (const CacheEntry& entry : entries) {
    rows.append(nb::make_tuple(entry.name, entry.arch, entry.hash, entry.bytes, entry.valid, entry.problem,
                               entry.folder.string()));
  }
  return rows;
}

}  // namespace

void bind_tools(nb::module_& module) {
  using nb::literals::operator""_a;
  const auto bind = [&](const char* name, auto function) {
    module.def(name, function, "bf16"_a, "sizes"_a, "causal"_a, "window_size"_a, "softcap"_a.none(), "score"_a.none(),
               "mask"_a.none(), "params"_a, "arch"_a.none(), "ordinal"_a.none());
  };
  bind("explain", &explain_problem);
  bind("jit", &jit);
  module.def("counters", &counters, "emulator"_a.none());
  module.def("finish", &finish, nb::call_guard<WithoutGil>());
  module.def("cache_root", [] { return default_cache_root().string(); });
  module.def("cache_list", &cache_list);
  module.def("cache_clear", [] { return Cache(default_cache_root()).clear(); });
}

}  // namespace attune::python
