#!/usr/bin/env python3
"""Attune beside PyTorch's FlashAttention-2 in one process: the head_dim 64 and 128 prefill cases.

Loads libattune through its C ABI, checks each result against float32 attention, then times both on the same
tensors: interleaved, CUDA events, L2 flushed before each launch, medians. TFLOP/s counts 4 B H L^2 D, halved when
causal. Exit code 1 when a result is wrong, 3 without a GPU.

    python3 tests/bench/compare_fa2.py build/libattune.so [--rounds 15] [--json FILE]
"""

import argparse
import ctypes
import json
import statistics
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS = 16384  # of one batch
HIDDEN = 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [(f"stride_{d}", ctypes.c_int64) for d in ("batch", "seq", "head")]

    @classmethod
    def of(cls, tensor):
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class PrefillArgs(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("dtype", ctypes.c_int)]
        + [(name, Tensor) for name in "qkvo"]
        + [("lse", ctypes.c_void_p)]
        + [(n, ctypes.c_int32) for n in ("batch", "seqlen_q", "seqlen_k", "heads_q", "heads_kv", "head_dim")]
        + [("softmax_scale", ctypes.c_float), ("causal", ctypes.c_int32)]
    )


class Attune:
    """A registry of libattune."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.attune_last_error.restype = ctypes.c_char_p
        self.registry = ctypes.c_void_p()
        self.check(self.lib.attune_registry_create(None, ctypes.byref(self.registry)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.attune_last_error().decode())

    def prepare(self, q, k, v, o, lse, causal):
        """A function that launches this problem on the current stream."""
        batch, length, heads, head_dim = q.shape
        args = PrefillArgs(
            ctypes.sizeof(PrefillArgs), 1, Tensor.of(q), Tensor.of(k), Tensor.of(v), Tensor.of(o), lse.data_ptr(),
            batch, length, k.shape[1], heads, k.shape[2], head_dim, head_dim**-0.5, int(causal),
        )
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return lambda: self.check(self.lib.attune_prefill(self.registry, ctypes.byref(args), stream))


def largest_error(o, q, k, v, causal):
    """Of the first sequence's first and last head, against float32."""
    worst = 0.0
    for head in (0, q.shape[2] - 1):
        qf, kf, vf = (x[0, :, head].float() for x in (q, k, v))
        scores = qf @ kf.T * q.shape[3] ** -0.5
        if causal:
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        worst = max(worst, (o[0, :, head].float() - torch.softmax(scores, -1) @ vf).abs().max().item())
    return worst


def median_ms(functions, rounds, flush):
    """Median time of each function, interleaved."""
    events = [[] for _ in functions]
    for _ in range(rounds + 2):
        for function, series in zip(functions, events):
            flush.zero_()
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            function()
            stop.record()
            series.append((start, stop))
    torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) for a, b in series[2:]) for series in events]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", help="path of libattune.so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no GPU")
        return 3
    torch.manual_seed(0)
    attune = Attune(options.library)
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, bf16, TFLOP/s\n")
    print("| case | Attune | FlashAttention-2 | ratio |\n|---|---|---|---|")
    rows = []
    for head_dim in (64, 128):
        heads = HIDDEN // head_dim
        for length in LENGTHS:
            for causal in (False, True):
                batch = TOKENS // length
                shape = (batch, length, heads, head_dim)
                q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
                o = torch.full_like(q, float("nan"))
                lse = torch.empty(batch, heads, length, device="cuda")
                launch = attune.prepare(q, k, v, o, lse, causal)
                qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

                def flash_attention_2():
                    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                        return F.scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

                launch()
                case = f"d{head_dim} b{batch} h{heads} L{length} {'causal' if causal else 'full'}"
                error = largest_error(o, q, k, v, causal)
                if not error < 0.02:
                    print(f"{case}: WRONG, off by {error}")
                    return 1
                ours, theirs = median_ms((launch, flash_attention_2), options.rounds, flush)
                flop = 4 * batch * heads * length**2 * head_dim / (2 if causal else 1)
                rows.append({"case": case, "attune": flop / ours / 1e9, "fa2": flop / theirs / 1e9,
                             "ratio": theirs / ours})
                print(f"| {case} | {rows[-1]['attune']:.0f} | {rows[-1]['fa2']:.0f} | {rows[-1]['ratio']:.2f} |")
    ratios = [row["ratio"] for row in rows]
    print(f"\ngeometric mean {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
