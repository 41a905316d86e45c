#include "runtime/operations/backward/arguments.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/base/add_line.hpp"
#include "runtime/call/arguments.hpp"
#include "runtime/call/dropout.hpp"
#include "runtime/call/expressions.hpp"
#include "runtime/call/limits.hpp"
#include "runtime/call/tensor_maps.hpp"

namespace attune {
namespace {

/// The extents of a call's tensors.
struct Shapes {
  Extents q;
  Extents k;
  Extents v;
  Extents o;

  explicit Shapes(const BackwardProblem& problem)
      : q{problem.stored_sequences(), problem.stored_rows(), problem.heads_q, problem.head_dim, problem.dtype},
        k{problem.stored_sequences(), problem.stored_keys(), problem.heads_kv, problem.head_dim, problem.dtype},
        v(k),
        o(q) {
    v.head_dim = o.head_dim = problem.head_dim_of_v();
    // Nothing is launched that would see a batch of none.
    if (problem.batch == 0) q.batch = k.batch = v.batch = o.batch = 0;
  }
};

/// Of attune_backward_args before it had expressions.
constexpr std::size_t oldest_backward_args =
    offsetof(attune_backward_args, dropout) + sizeof(attune_backward_args::dropout);

BackwardProblem read_problem(const attune_backward_args& args) {
  check_struct_size("attune_backward_args", args.struct_size, oldest_backward_args);
  BackwardProblem problem{.dtype = static_cast<Dtype>(raw(args.dtype)),
                          .batch = args.batch,
                          .heads_q = args.heads_q,
                          .heads_kv = args.heads_kv,
                          .seqlen_q = args.seqlen_q,
                          .seqlen_k = args.seqlen_k,
                          .head_dim = args.head_dim,
                          .head_dim_v = args.head_dim_v != args.head_dim ? args.head_dim_v : 0,
                          .causal = args.causal != 0,
                          .softcap = args.softcap,
                          .dropout = kept_values(args.dropout.p) < 256,
                          .expressions = read_expressions(expression_texts(args)),
                          .any_order = args.any_order != 0};
  if (args.window != 0) {
    problem.window_left = args.window_left;
    problem.window_right = args.window_right;
  }
  take_limits(problem);
  problem.ragged = args.cu_seqlens_q != nullptr || args.cu_seqlens_k != nullptr;
  if (problem.ragged) {
    problem.total_q = args.total_q;
    problem.total_k = args.total_k;
  }
  return problem;
}

void check_scalars(std::vector<std::string>& found, const attune_backward_args& args) {
  check_softmax_scale(found, args.softmax_scale);
  check_dropout(found, args.dropout);
  check_flag(found, "causal", args.causal);
  check_flag(found, "window", args.window);
  check_flag(found, "any_order", args.any_order);
}

void check_ragged(std::vector<std::string>& found, const attune_backward_args& args) {
  check_both_starts(found, args.cu_seqlens_q, args.cu_seqlens_k);
  if (args.cu_seqlens_q != nullptr || args.cu_seqlens_k != nullptr) return;
  for (const auto& [name, array] : {std::pair{"seqused_q", args.seqused_q}, {"seqused_k", args.seqused_k}}) {
    if (array != nullptr) {
      add_line(found, "{} is given without cu_seqlens_q and cu_seqlens_k; only ragged batches have it", name);
    }
  }
}

/// That each gradient begins where no other tensor does.
void check_apart(std::vector<std::string>& found, const attune_backward_args& args, const Shapes& shapes) {
  struct Named {
    const char* name;
    const void* data;
  };
  const auto named = [](const char* name, const attune_tensor& tensor, const Extents& extents) {
    return Named{name, extents.empty() ? nullptr : tensor.data};
  };
  const std::array all{named("q", args.q, shapes.q),       named("k", args.k, shapes.k),
                       named("v", args.v, shapes.v),       named("o", args.o, shapes.o),
                       named("dout", args.dout, shapes.o), named("dq", args.dq, shapes.q),
                       named("dk", args.dk, shapes.k),     named("dv", args.dv, shapes.v)};
  constexpr std::size_t first_gradient = 5;
  for (std::size_t i = first_gradient; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (all[i].data != nullptr && all[i].data == all[j].data) {
        add_line(found, "{} has the data of {}; a gradient must be apart from all other tensors", all[i].name,
                 all[j].name);
      }
    }
  }
}

/// Whether tensor maps take those that kernels of them read and write. One without data is not there yet, as where
/// sizes are asked for: it is taken for one that maps take.
bool has_mappable_tensors(const attune_backward_args& args, const BackwardProblem& problem) {
  const Shapes shapes(problem);
  const auto is_mappable = [&](const attune_tensor& tensor, const Extents& extents) {
    return tensor.data == nullptr || has_mappable_strides(tensor, extents, problem.ragged);
  };
  return is_mappable(args.q, shapes.q) && is_mappable(args.k, shapes.k) && is_mappable(args.v, shapes.v) &&
         is_mappable(args.dout, shapes.o) && is_mappable(args.dk, shapes.k) && is_mappable(args.dv, shapes.v);
}

Operand lse_operand(const char* name, const float* data, const Extents& q) {
  return array_operand(name, data, {1, q.batch, q.heads, q.seq});
}

void visit_arrays(const attune_backward_args& args, const BackwardProblem& problem, VisitOperand visit) {
  if (problem.dropout) visit(dropout_operand(args.dropout));
  visit_expressions(expression_texts(args), problem.expressions, visit);
  if (!problem.ragged) return;
  visit(lengths_operand("cu_seqlens_q", args.cu_seqlens_q, problem.batch + 1LL));
  visit(lengths_operand("cu_seqlens_k", args.cu_seqlens_k, problem.batch + 1LL));
  visit(lengths_operand("seqused_q", args.seqused_q, problem.batch));
  visit(lengths_operand("seqused_k", args.seqused_k, problem.batch));
}

/// LSE and D of each row.
Operand statistics_operand(const AttuneBackwardParams& params, Access access) {
  return array_operand("statistics", params.statistics, {1, 1, params.heads_q, 2LL * params.padded_rows}, access);
}

/// The sums that become dQ; null where there are none.
Operand sums_operand(const AttuneBackwardParams& params, Access access) {
  return array_operand("dq_sums", params.dq_sums,
                       {1, params.heads_q, params.padded_rows / 16, 16LL * params.dq_columns}, access);
}

/// Whose turn it is to add; null where that does not matter.
Operand turns_operand(const AttuneBackwardParams& params, int rows) {
  return array_operand("turns", params.turns, {1, 1, params.heads_q, params.padded_rows / rows}, Access::write);
}

/// What every product reads.
void visit_inputs(const attune_backward_args& args, const Shapes& shapes, VisitOperand visit) {
  visit(tensor_operand("q", args.q, shapes.q, Access::read));
  visit(tensor_operand("k", args.k, shapes.k, Access::read));
  visit(tensor_operand("v", args.v, shapes.v, Access::read));
  visit(tensor_operand("dout", args.dout, shapes.o, Access::read));
}

}  // namespace

BackwardProblem check_shapes(const attune_backward_args& args) {
  BackwardProblem problem = read_problem(args);
  throw_if_any(problems_of(problem));
  set_window(problem, problem.window_left, problem.window_right);
  problem.mappable_strides = has_mappable_tensors(args, problem);
  return problem;
}

BackwardProblem check_arguments(const attune_backward_args& args) {
  BackwardProblem problem = read_problem(args);
  std::vector<std::string> found = problems_of(problem);
  const bool shapes_ok = found.empty();
  check_scalars(found, args);
  check_ragged(found, args);
  if (shapes_ok && !is_empty(problem)) {
    visit_operands(args, problem, [&](const Operand& operand) { check_operand(found, operand); });
    check_apart(found, args, Shapes(problem));
    check_expressions(found, expression_texts(args), problem.expressions, expression_extents(problem));
  }
  throw_if_any(found);
  set_window(problem, problem.window_left, problem.window_right);
  problem.mappable_strides = has_mappable_tensors(args, problem);
  return problem;
}

void check_workspace(const attune_backward_args& args, const BackwardWorkspace& workspace) {
  if (workspace.bytes() == 0) return;
  std::vector<std::string> found;
  check_workspace(found, args.workspace, args.workspace_bytes, workspace.bytes(), "attune_backward_workspace");
  check_alignment(found, "workspace", args.workspace, vector_bytes);
  throw_if_any(found);
}

AttuneBackwardParams make_params(const attune_backward_args& args, const BackwardProblem& problem,
                                 const BackwardWorkspace& workspace, std::uint64_t launch) {
  const Shapes shapes(problem);
  const ScoreScales scales = scales_of(args.softmax_scale, problem.softcap, problem.expressions.score != 0);
  auto* const statistics = static_cast<std::byte*>(args.workspace);
  const auto words_at = [&](std::size_t offset, std::size_t bytes) {
    return bytes == 0 ? nullptr : reinterpret_cast<unsigned long long*>(statistics + offset);
  };
  return {
      .q = kernel_tensor(args.q, shapes.q),
      .k = kernel_tensor(args.k, shapes.k),
      .v = kernel_tensor(args.v, shapes.v),
      .o = kernel_tensor(args.o, shapes.o),
      .dout = kernel_tensor(args.dout, shapes.o),
      .dq = kernel_tensor(args.dq, shapes.q),
      .dk = kernel_tensor(args.dk, shapes.k),
      .dv = kernel_tensor(args.dv, shapes.v),
      .lse = args.lse,
      .dlse = args.dlse,
      .statistics = reinterpret_cast<float*>(statistics),
      .dq_sums = workspace.dq_bytes == 0 ? nullptr : reinterpret_cast<float*>(statistics + workspace.statistics_bytes),
      .turns = words_at(workspace.key_turns_offset() + workspace.key_turn_bytes, workspace.turn_bytes),
      .key_sums =
          workspace.key_sum_bytes == 0 ? nullptr : reinterpret_cast<float*>(statistics + workspace.key_sums_offset()),
      .key_turns = words_at(workspace.key_turns_offset(), workspace.key_turn_bytes),
      .launch = launch,
      .scale = args.softmax_scale,
      .scale_log2 = scales.scale_log2,
      .cap_scale = scales.cap_scale,
      .batch = problem.batch,
      .heads_q = problem.heads_q,
      .seqlen_q = problem.seqlen_q,
      .seqlen_k = problem.seqlen_k,
      .head_dim = problem.head_dim,
      .head_dim_v = problem.head_dim_of_v(),
      .gqa_ratio = problem.heads_q / problem.heads_kv,
      .head_parts = workspace.head_parts,
      .part_heads = problem.heads_q / problem.heads_kv / workspace.head_parts,
      .window_left = bounded(problem.window_left, problem.seqlen_k),
      .window_right = problem.causal ? 0 : bounded(problem.window_right, problem.seqlen_q),
      .padded_seqlen_q = static_cast<int>(problem.padded_seqlen_q()),
      .padded_rows = static_cast<int>(problem.padded_rows()),
      .dq_columns = workspace.dq_columns,
      .dq_in_quads = workspace.dq_in_quads ? 1 : 0,
      .total_q = problem.total_q,
      .total_k = problem.total_k,
      .cu_seqlens_q = args.cu_seqlens_q,
      .cu_seqlens_k = args.cu_seqlens_k,
      .seqused_q = args.seqused_q,
      .seqused_k = args.seqused_k};
}

AttuneTensorBackwardParams make_tensor_params(const AttuneBackwardParams& params, const Variant& variant,
                                              const BackwardProblem& problem, const Executor& executor) {
  const Shapes shapes(problem);
  const auto map = [&](const AttuneTensor& tensor, const Extents& extents, int rows) {
    const TensorDescription plain = describe(tensor, extents, rows);
    return executor.encode(problem.ragged ? spread(plain) : plain);
  };
  constexpr int gradient_rows = 64;  // that a warpgroup writes
  return {params,
          map(params.q, shapes.q, variant.B_r),
          map(params.dout, shapes.o, variant.B_r),
          map(params.k, shapes.k, variant.B_c),
          map(params.v, shapes.v, variant.B_c),
          map(params.dk, shapes.k, gradient_rows),
          map(params.dv, shapes.v, gradient_rows)};
}

void visit_rows(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                VisitOperand visit) {
  const Shapes shapes(problem);
  visit(tensor_operand("o", args.o, shapes.o, Access::read));
  visit(tensor_operand("dout", args.dout, shapes.o, Access::read));
  visit(lse_operand("lse", args.lse, shapes.q));
  visit(lse_operand("dlse", args.dlse, shapes.q));
  visit_arrays(args, problem, visit);
  visit(statistics_operand(params, Access::write));
  visit(sums_operand(params, Access::write));
  if (!problem.ragged) return;
  visit(tensor_operand("dq", args.dq, shapes.q, Access::write));
  visit(tensor_operand("dk", args.dk, shapes.k, Access::write));
  visit(tensor_operand("dv", args.dv, shapes.v, Access::write));
}

void visit_keys(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                const Variant& variant, VisitOperand visit) {
  const Shapes shapes(problem);
  visit_inputs(args, shapes, visit);
  visit(tensor_operand("dk", args.dk, shapes.k, Access::write));
  visit(tensor_operand("dv", args.dv, shapes.v, Access::write));
  visit_arrays(args, problem, visit);
  visit(statistics_operand(params, Access::read));
  visit(sums_operand(params, Access::add));
  visit(turns_operand(params, turn_rows(variant)));
  // What one part leaves to the next.
  const long long tiles = (problem.longest_keys() + variant.B_c - 1LL) / variant.B_c;
  const long long words = tiles * key_warps;
  visit(array_operand("key_sums", params.key_sums,
                      {problem.batch, problem.heads_kv, words, 2LL * variant.B_c * variant.head_dim / key_warps},
                      Access::write));
  visit(array_operand("key_turns", params.key_turns, {1, problem.batch, problem.heads_kv, words}, Access::write));
}

void visit_queries(const attune_backward_args& args, const BackwardProblem& problem, const AttuneBackwardParams& params,
                   VisitOperand visit) {
  const Shapes shapes(problem);
  visit_inputs(args, shapes, visit);
  visit(tensor_operand("dq", args.dq, shapes.q, Access::write));
  visit_arrays(args, problem, visit);
  visit(statistics_operand(params, Access::read));
  visit(sums_operand(params, Access::read));
}

void visit_operands(const attune_backward_args& args, const BackwardProblem& problem, VisitOperand visit) {
  const Shapes shapes(problem);
  visit(tensor_operand("q", args.q, shapes.q, Access::read));
  visit(tensor_operand("k", args.k, shapes.k, Access::read));
  visit(tensor_operand("v", args.v, shapes.v, Access::read));
  visit(tensor_operand("o", args.o, shapes.o, Access::read));
  visit(tensor_operand("dout", args.dout, shapes.o, Access::read));
  Operand lse = lse_operand("lse", args.lse, shapes.q);
  if (!shapes.q.empty()) lse.needed = "";
  visit(lse);
  visit(lse_operand("dlse", args.dlse, shapes.q));
  visit(tensor_operand("dq", args.dq, shapes.q, Access::write));
  visit(tensor_operand("dk", args.dk, shapes.k, Access::write));
  visit(tensor_operand("dv", args.dv, shapes.v, Access::write));
  visit_arrays(args, problem, visit);
}

}  // namespace attune
