"""A small GPT, trained with Attune's attention and with PyTorch's own, and a picture of their losses.

Runs of a seed have the same weights to begin with and the same batches, so that their losses differ by rounding alone:
those with Attune may be as far from those of PyTorch's flash backend as PyTorch's own two backends are from one another.
Rounding grows from step to step until losses differ by chance, so that of one seed either may be nearer: what is compared
is the root mean square over seeds, with the range that as many other seeds would give. With 4 of them an attention that
rounds as well as PyTorch's would look 1.5 times as far apart in one of five tries, with 8 in one of ten, with 16 in one
of 28.

The text is made here. Needs PyTorch 2.4 or newer and a GPU; a minute or two on a fast one.

    python train_gpt.py --seeds 16 --picture losses.svg
"""

from __future__ import annotations

import argparse
import functools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune.torch

#: The losses of each step.
Losses = list[float]
Curves = dict[str, Losses]


class Config(NamedTuple):
    """What is trained, and how."""

    layers: int = 6
    heads: int = 6
    head_dim: int = 64
    context: int = 256
    batch: int = 32
    steps: int = 300
    learning_rate: float = 1e-3
    seed: int = 0
    seeds: int = 4  # this one and those that follow

    @property
    def hidden(self) -> int:
        return self.heads * self.head_dim


@functools.cache
def story(seed: int, sentences: int = 40_000) -> bytes:
    """Sentences about who has how many of what, with sums that come out right: there is something to learn at each
    distance."""
    draw = random.Random(seed)
    names = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo"]
    things = ["apples", "books", "coins", "drums", "eggs", "flutes"]
    lines = []
    for _ in range(sentences):
        giver, taker = draw.sample(names, 2)
        thing = draw.choice(things)
        had, given = draw.randrange(10, 60), draw.randrange(1, 10)
        lines.append(
            f"{giver} had {had} {thing} and gave {given} to {taker}; "
            f"{giver} has {had - given} {thing} left, and {taker} says: thank you, {giver}!\n"
        )
    return "".join(lines).encode()


def batches(config: Config, seed: int, device: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens, which are bytes, and the tokens after them."""
    text = torch.frombuffer(bytearray(story(config.seed)), dtype=torch.uint8)
    draw = torch.Generator().manual_seed(seed)
    starts = torch.randint(
        len(text) - config.context - 1, (config.steps, config.batch, 1), generator=draw
    )
    for rows in text[starts + torch.arange(config.context + 1)].to(device):
        tokens = rows.to(torch.int64)
        yield tokens[:, :-1], tokens[:, 1:]


def with_attune(qkv: torch.Tensor) -> torch.Tensor:
    return attune.torch.flash_attn_qkvpacked_func(qkv, causal=True)


def with_sdpa(qkv: torch.Tensor) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in qkv.unbind(2))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


class Block(torch.nn.Module):
    def __init__(self, config: Config, attend: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        hidden = config.hidden
        self.shape = (3, config.heads, config.head_dim)
        self.attend = attend
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(hidden) for _ in range(2))
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.up = torch.nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = torch.nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norms[0](x)).unflatten(-1, self.shape)
        x = x + self.out(self.attend(qkv).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class GPT(torch.nn.Module):
    def __init__(self, config: Config, attend: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(256, config.hidden)
        self.positions = torch.nn.Embedding(config.context, config.hidden)
        self.blocks = torch.nn.ModuleList(Block(config, attend) for _ in range(config.layers))
        self.norm = torch.nn.LayerNorm(config.hidden)

    def begin(self, seed: int) -> None:
        """Draws the weights, in place: what has been compiled stays."""
        torch.manual_seed(seed)
        for part in self.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.reset_parameters()
            elif isinstance(part, (torch.nn.Linear, torch.nn.Embedding)):
                torch.nn.init.normal_(part.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """The mean loss."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1).float(), following.flatten())


def train(
    config: Config,
    attend: Callable[[torch.Tensor], torch.Tensor],
    sdpa: SDPBackend,
    device: str,
    backend: str,
) -> list[Losses]:
    """Those of each seed, of a model that is compiled once."""
    torch.compiler.reset()
    model = GPT(config, attend).to(device)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    warm_up = max(1, config.steps // 10)
    runs = []
    for seed in range(config.seed, config.seed + config.seeds):
        model.begin(seed)
        optimizer = torch.optim.AdamW(
            model.parameters(), config.learning_rate, betas=(0.9, 0.95), fused=device == "cuda"
        )
        losses = []
        for step, (tokens, following) in enumerate(batches(config, seed, device)):
            for group in optimizer.param_groups:
                group["lr"] = config.learning_rate * min(1, (step + 1) / warm_up)
            with sdpa_kernel(sdpa), torch.autocast(device, torch.bfloat16):
                loss = compiled(tokens, following)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        runs.append(torch.stack(losses).tolist())
    return runs


LAST = 50  # steps, whose mean loss is the end of a run


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def end(losses: Losses) -> float:
    return mean(losses[-LAST:])


def rms(values: Sequence[float]) -> float:
    return math.sqrt(mean([x * x for x in values]))


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return rms(one) / rms(other) if any(other) else math.inf


def likely_ratios(
    one: Sequence[float], other: Sequence[float], tries: int = 4000
) -> tuple[float, float]:
    """Between which 95% of the ratios lie that other seeds, drawn from these, give."""
    draw = random.Random(0)
    pairs = list(zip(one, other))
    found = sorted(ratio(*zip(*draw.choices(pairs, k=len(pairs)))) for _ in range(tries))
    return found[tries // 40], found[-1 - tries // 40]


def main(
    config: Config,
    device: str = "cuda",
    backend: str = "inductor",
    picture: Path | None = None,
) -> dict[str, list[Losses]]:
    """Returns the losses of each attention and seed."""
    parameters = sum(x.numel() for x in GPT(config, with_sdpa).parameters())
    print(f"{parameters / 1e6:.1f} M parameters, {config.steps} steps, {config.seeds} seeds")
    runs = {}
    for name, attend, sdpa in (
        ("attune", with_attune, SDPBackend.FLASH_ATTENTION),
        ("sdpa flash", with_sdpa, SDPBackend.FLASH_ATTENTION),
        ("sdpa math", with_sdpa, SDPBackend.MATH),
    ):
        runs[name] = train(config, attend, sdpa, device, backend)
        first = mean([losses[0] for losses in runs[name]])
        last = mean([end(losses) for losses in runs[name]])
        print(f"{name + ':':12}{first:.4f} at first, {last:.5f} at the end")
    own, flash, by_formula = ([end(losses) for losses in each] for each in runs.values())
    of_own = [x - y for x, y in zip(own, flash)]
    of_math = [x - y for x, y in zip(by_formula, flash)]
    for name, apart in (("attune", of_own), ("sdpa math", of_math)):
        print(f"{name} differs from sdpa flash at the end by {rms(apart):.2g} (root mean square)")
    least, most = likely_ratios(of_own, of_math)
    print(
        f"ratio {ratio(of_own, of_math):.2f}, of other seeds {least:.2f} to {most:.2f}; 1.5 at most"
    )
    if picture is not None:
        curves = {name: each[0] for name, each in runs.items()}
        picture.write_text(drawn(curves), encoding="utf-8")
        print(f"wrote {picture}")
    return runs


#: Told apart by the colour-blind too (Wong, Nature Methods 8, 441, 2011).
_COLOURS = ("#d55e00", "#0072b2", "#009e73")
_WIDTH, _HEIGHT, _MARGIN = 640, 220, 60


def drawn(curves: Curves) -> str:
    """The losses, and below them what they differ from the second by, as SVG."""
    _, reference, *_ = curves.values()
    apart = {
        name: [one - other for one, other in zip(losses, reference)]
        for name, losses in curves.items()
        if losses is not reference
    }
    colours = dict(zip(curves, _COLOURS))
    name = next(name for name, losses in curves.items() if losses is reference)
    parts = [
        *_panel(curves, colours, 0, "loss"),
        *_panel(apart, colours, _HEIGHT + _MARGIN, f"difference from {name}"),
    ]
    width, height = _WIDTH + 2 * _MARGIN, 2 * _HEIGHT + 3 * _MARGIN
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
    head += 'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
    return head + "\n".join(parts) + "\n</svg>\n"


def _panel(curves: Curves, colours: dict[str, str], top: int, title: str) -> Iterator[str]:
    """Lines over the steps, from the least value to the greatest."""
    values = [value for losses in curves.values() for value in losses]
    least, greatest = min(values), max(values)
    steps = max(len(losses) for losses in curves.values())

    def at(step: float, value: float) -> tuple[float, float]:
        across = _MARGIN + _WIDTH * step / max(1, steps - 1)
        down = _MARGIN + top + _HEIGHT * (greatest - value) / ((greatest - least) or 1)
        return across, down

    yield f'<text x="{_MARGIN}" y="{top + _MARGIN - 12}" font-weight="bold">{title}</text>'
    for i in range(5):
        value = least + (greatest - least) * i / 4
        x, y = at(0, value)
        yield f'<path d="M{x:.1f} {y:.1f}h{_WIDTH}" stroke="#dddddd"/>'
        yield f'<text x="{x - 6:.1f}" y="{y + 4:.1f}" text-anchor="end">{value:.3g}</text>'
        x, y = at((steps - 1) * i / 4, least)
        yield f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle">{(steps - 1) * i // 4}</text>'
    for i, (name, losses) in enumerate(curves.items()):
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in enumerate(losses))
        yield f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.2"/>'
        x, y = _MARGIN + _WIDTH - 100 * (len(curves) - i) + 20, top + _MARGIN - 12
        yield f'<text x="{x}" y="{y}" fill="{colours[name]}">{name}</text>'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=Config().steps)
    parser.add_argument("--seed", type=int, default=Config().seed)
    parser.add_argument("--seeds", type=int, default=Config().seeds, help="how many, from that on")
    parser.add_argument(
        "--picture", type=Path, help="where to draw the first seed's losses, as SVG"
    )
    asked = parser.parse_args()
    main(Config(steps=asked.steps, seed=asked.seed, seeds=asked.seeds), picture=asked.picture)
