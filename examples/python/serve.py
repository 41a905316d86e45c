"""A small serving engine (engine/) with a random Qwen3: continuous batching, chunked prefill beside decoding, a paged
K/V cache whose pages hold prefixes for others to share, CUDA graphs of steps that only decode.

Requests come at different times, more than the cache holds; many begin alike. Each token is held to the one that the
same model gives with eager attention. Then the first token of a fresh process is timed: with no kernel in the cache on
the disk, and with those left there and none compiled (ATTUNE_COMPILE=frozen).

Needs NumPy alone, and then runs in the emulator; with PyTorch and a GPU it runs larger sizes there.

    python serve.py --page-size 1
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np
from engine.engine import Engine
from engine.model import Config, Model
from engine.scheduler import Request

import attune

try:
    import torch
except ImportError:
    torch = None


class Sizes(NamedTuple):
    """What is served, and by what; these are for the emulator.

    Attributes:
        config: Of the model.
        requests: How many come; half of them begin with the same tokens.
        new_tokens: Generated for each, at most.
        cache: Tokens that the K/V cache has room for.
        max_requests: How many run at once.
        max_tokens: Of one step.
    """

    config: Config = Config()
    requests: int = 10
    new_tokens: int = 12
    cache: int = 224
    max_requests: int = 4
    max_tokens: int = 48


#: As wide as Qwen3-0.6B.
ON_GPU = Sizes(
    Config(
        vocab_size=4096,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=2048,
    ),
    requests=64,
    new_tokens=128,
    cache=8192,
    max_requests=32,
    max_tokens=1024,
)


class Result(NamedTuple):
    """Tokens generated, those that eager attention gives too, and by how much the others' logits fall short of its
    largest, at most."""

    generated: int
    equal: int
    short: float


def requests(sizes: Sizes, seed: int) -> list[Request]:
    draw = random.Random(seed)
    longest = sizes.config.max_position_embeddings - sizes.new_tokens
    tokens = range(sizes.config.vocab_size)
    prefix = draw.choices(tokens, k=longest // 2)
    made = []
    for i in range(sizes.requests):
        beginning = prefix if i % 2 == 0 else []
        own = draw.choices(tokens, k=draw.randint(1, longest // 2))
        made.append(Request(beginning + own, draw.randint(1, sizes.new_tokens)))
    return made


def serve(engine: Engine, coming: list[Request]) -> None:
    """Two requests come at first, and another with each step."""
    left = iter(coming)
    engine.add(next(left))
    for request in left:
        engine.add(request)
        engine.step()
    while engine.busy:
        engine.step()


def compare(model: Model, served: list[Request]) -> Result:
    """Holds each token to eager attention of what is before it; so where all are equal, each request is as if eager
    attention alone had generated it."""
    generated = equal = 0
    short = 0.0
    for request in served:
        rows = np.arange(request.prompt, len(request.tokens)) - 1
        tokens = np.array(request.tokens, np.int32)
        logits = model.eager(model.put(tokens), model.put(rows))
        given = logits[model.put(rows - rows[0]), model.put(tokens[request.prompt :])]
        under = (model.xp.amax(logits, -1) - given).tolist()
        generated += len(under)
        equal += under.count(0)
        short = max(short, *under)
    return Result(generated, equal, short)


def first_token(engine: Engine, request: Request) -> float:
    """Seconds from a request to its first token, where all but Attune's kernels is ready."""
    prompt = np.array(request.tokens, np.int32)
    engine.model.eager(engine.model.put(prompt), engine.model.put(np.array([0]))).tolist()
    start = time.perf_counter()
    engine.add(request)
    while len(request.tokens) == request.prompt:
        engine.step()
    return time.perf_counter() - start


def cold_start(arguments: list[str]) -> None:
    """Two processes, one after the other, with a cache of kernels that is empty at first."""
    with tempfile.TemporaryDirectory() as folder:
        for state, policy in (("an empty", "missing"), ("a warm", "frozen")):
            environment = os.environ | {"ATTUNE_CACHE_DIR": folder, "ATTUNE_COMPILE": policy}
            command = [sys.executable, __file__, "--first-token", *arguments]
            done = subprocess.run(
                command, env=environment, check=True, stdout=subprocess.PIPE, text=True
            )
            print(f"first token with {state} cache of kernels: {done.stdout.strip()}")


def main(arguments: list[str] | None = None, device: str | None = None) -> Result:
    """Serves what the arguments say, of NumPy arrays, or of PyTorch tensors on a device."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument(
        "--page-size", type=int, default=16, help="1: the block table is one of tokens"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights and requests")
    parser.add_argument(
        "--small", action="store_true", help="on a GPU, too, the sizes of the emulator"
    )
    parser.add_argument(
        "--no-graphs", action="store_true", help="on a GPU, launch each kernel of each step"
    )
    parser.add_argument("--no-cold-start", action="store_true", help="do not time first tokens")
    parser.add_argument(
        "--first-token", action="store_true", help="time this process's first token, no more"
    )
    asked = parser.parse_args(arguments)

    on_gpu = device == "cuda"
    sizes = ON_GPU if on_gpu and not asked.small else Sizes()
    model = Model(sizes.config, np if device is None else torch, device, asked.seed)
    pages = sizes.cache // asked.page_size
    limits = (sizes.max_requests, sizes.max_tokens)
    engine = Engine(model, pages, asked.page_size, *limits, graphs=on_gpu and not asked.no_graphs)
    coming = requests(sizes, asked.seed)
    if asked.first_token:
        seconds = first_token(engine, coming[0])
        print(f"{seconds:.3f} s, {attune.counters().compiles} kernels compiled")
        return compare(model, coming[:1])

    serve(engine, coming)
    result = compare(model, coming)
    counts, preempted = engine.counts, engine.scheduler.preemptions
    shared = sum(request.shared for request in coming)
    print(f"tokens generated: {result.generated}, equal to eager attention's: {result.equal}")
    if result.equal < result.generated:
        print(f"the logits of the others are at most {result.short:.2g} below its largest")
    prompts = sum(request.prompt for request in coming)
    print(f"prefix cache: {shared} tokens found, of {prompts} in prompts")
    print(f"steps: {counts.steps}, {counts.mixed} of them mixed, {counts.decode} only decoding")
    print(f"requests: {len(coming)}, up to {counts.waiting} waiting, {preempted} preempted")
    if not asked.no_cold_start:
        cold_start(sys.argv[1:] if arguments is None else arguments)
    return result


if __name__ == "__main__":
    main(device="cuda" if torch is not None and torch.cuda.is_available() else None)
