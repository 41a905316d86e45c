"""A decode loop with a cache in pages, each step one replay of a CUDA graph. GPU only: the emulator has no graphs.

Lengths and block tables are read on the GPU, so that one graph serves every step.
"""

import torch

import attune.torch

BATCH, HEADS_Q, HEADS_KV, HEAD_DIM = 4, 8, 2, 128
PAGE_SIZE, PAGES_EACH, STEPS = 16, 8, 40


@torch.no_grad()
def main() -> float:
    """Returns the largest difference to attention computed by PyTorch, over all steps."""
    torch.manual_seed(0)
    options = {"dtype": torch.bfloat16, "device": "cuda"}
    pages = BATCH * PAGES_EACH
    k_cache, v_cache = torch.zeros(2, pages, PAGE_SIZE, HEADS_KV, HEAD_DIM, **options)
    table = torch.randperm(pages, device="cuda").to(torch.int32).reshape(BATCH, PAGES_EACH)
    lengths = torch.zeros(BATCH, dtype=torch.int32, device="cuda")

    # A graph reads and writes the same memory at each replay.
    q = torch.zeros(BATCH, 1, HEADS_Q, HEAD_DIM, **options)
    k_new, v_new = torch.zeros(2, BATCH, 1, HEADS_KV, HEAD_DIM, **options)

    def step() -> torch.Tensor:
        return attune.torch.flash_attn_with_kvcache(
            q, k_cache, v_cache, k=k_new, v=v_new, cache_seqlens=lengths, block_table=table, causal=True
        )

    step()  # has the kernel loaded, and compiled where none is ready; what it writes is written again
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    worst = 0.0
    keys, values = [], []
    for _ in range(STEPS):
        for tensor in (q, k_new, v_new):
            tensor.normal_()
        graph.replay()
        lengths += 1
        keys.append(k_new.clone())
        values.append(v_new.clone())
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2).float(),
            torch.cat(keys, 1).transpose(1, 2).repeat_interleave(HEADS_Q // HEADS_KV, 1).float(),
            torch.cat(values, 1).transpose(1, 2).repeat_interleave(HEADS_Q // HEADS_KV, 1).float(),
        ).transpose(1, 2)
        worst = max(worst, (out.float() - expected).abs().max().item())
    print(f"{STEPS} steps of one graph: the largest difference is {worst:.2g}")
    return worst


if __name__ == "__main__":
    main()
