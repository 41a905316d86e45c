// The problems that a model's layers ask for.
#include <algorithm>

#include "runtime/cli/model_config.hpp"

namespace attune::cli {
namespace {

/// The lengths up to `most` that can differ in which kernel serves them: few tiles, and twice and one and a half times
/// as many.
std::vector<int> lengths_up_to(int most) {
  std::vector<int> result{1, 64, 128, 192, 256, 320, 384};
  for (long long length = 512; length < most; length *= 2) {
    result.push_back(static_cast<int>(length));
    result.push_back(static_cast<int>(length * 3 / 2));
  }
  result.push_back(most);
  std::erase_if(result, [&](int length) { return length > most; });
  return result;
}

Problem prefill_of(const LayerShape& shape, Dtype dtype, int seqlen_q, int seqlen_k, int window) {
  Problem problem{.dtype = dtype,
                  .heads_q = shape.heads_q,
                  .heads_kv = shape.heads_kv,
                  .seqlen_q = seqlen_q,
                  .seqlen_k = seqlen_k,
                  .head_dim = shape.head_dim,
                  .head_dim_v = shape.head_dim_v == shape.head_dim ? 0 : shape.head_dim_v,
                  .causal = true,
                  .softcap = shape.softcap};
  if (window > 0) set_window(problem, window - 1, 0);
  return problem;
}

constexpr int usual_page = 16;

Problem ragged(Problem problem) {
  problem.ragged = true;
  problem.total_q = problem.seqlen_q;
  problem.total_k = problem.seqlen_k;
  return problem;
}

Problem paged(Problem problem) {
  problem.total_k = 0;
  problem.paged = true;
  problem.page_size = usual_page;
  problem.table_width = (problem.seqlen_k + usual_page - 1) / usual_page;
  problem.pages = problem.table_width;
  return problem;
}

/// With a window also without it: callers may leave it out where no length exceeds it.
void add_prefill(std::vector<Recorded>& result, const ModelConfig& model, const LayerShape& shape, bool serving) {
  for (const int seqlen_k : lengths_up_to(model.max_tokens)) {
    for (const int seqlen_q : lengths_up_to(seqlen_k)) {
      for (const int window : {0, shape.window}) {
        const Problem dense = prefill_of(shape, model.dtype, seqlen_q, seqlen_k, window);
        result.push_back({.problem = dense});
        if (!serving) continue;
        result.push_back({.problem = ragged(dense)});
        if (!model.latent) result.push_back({.problem = paged(ragged(dense))});
      }
    }
  }
}

/// Decoding a token of each sequence; with the rotation, where keys come along.
DecodeProblem decode_of(const ModelConfig& model, const LayerShape& shape, bool in_pages, Rotary rotary) {
  DecodeProblem problem{.dtype = model.dtype,
                        .heads_q = shape.heads_q,
                        .heads_kv = shape.heads_kv,
                        .head_dim = shape.head_dim,
                        .max_seqlen_k = model.max_tokens,
                        .page_size = in_pages ? usual_page : model.max_tokens,
                        .window_left = shape.window - 1,
                        .window_right = 0,
                        .softcap = shape.softcap,
                        .seqlen_new = 1,
                        .rotary = rotary};
  problem.table_width = (model.max_tokens + problem.page_size - 1) / problem.page_size;
  problem.pages = problem.table_width;
  if (rotary == Rotary::none) return problem;
  problem.rotary_dim = shape.rotary_dim;
  problem.rotations = model.max_tokens;
  return problem;
}

/// Ragged batches of few queries a sequence, up to as many as decode takes.
DecodeProblem ragged_decode_of(const ModelConfig& model, const LayerShape& shape, bool in_pages) {
  DecodeProblem problem = decode_of(model, shape, in_pages, Rotary::none);
  problem.seqlen_q = most_decode_queries;
  problem.seqlen_new = 0;
  problem.ragged = true;
  problem.total_q = most_decode_queries;
  return problem;
}

void add_decode(std::vector<Recorded>& result, const ModelConfig& model, const LayerShape& shape, bool serving) {
  for (const bool in_pages : {false, true}) {
    if (in_pages && !serving) continue;
    result.push_back({.problem = decode_of(model, shape, in_pages, Rotary::none)});
    if (shape.rotary_dim > 0) result.push_back({.problem = decode_of(model, shape, in_pages, model.rotary)});
    if (serving) result.push_back({.problem = ragged_decode_of(model, shape, in_pages)});
  }
}

}  // namespace

std::vector<Recorded> problems_of(const ModelConfig& model, bool serving) {
  std::vector<Recorded> result;
  if (!model.served()) return result;
  for (const LayerGroup& group : model.groups) {
    const LayerShape& shape = group.shape;
    if (!shape.lacks.empty()) continue;
    add_prefill(result, model, shape, serving);
    if (!model.latent) add_decode(result, model, shape, serving);
    if (!serving) continue;
    result.push_back(
        {.problem = MergeProblem{.dtype = model.dtype, .heads = shape.heads_q, .head_dim = shape.head_dim_v}});
  }
  return result;
}

}  // namespace attune::cli
