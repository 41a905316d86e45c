"""A small GPT, trained with Attune's attention and with PyTorch's own, and a picture of their losses.

Every run has the same weights to begin with and the same batches, so that their losses differ by rounding alone: those
with Attune may be as far from those of PyTorch's flash backend as PyTorch's own two backends are from one another. The
text is made here. Needs PyTorch 2.4 or newer and a GPU; some minutes on a fast one.

    python train_gpt.py --picture losses.svg
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import attune.torch

Curves = dict[str, list[float]]


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

    @property
    def hidden(self) -> int:
        return self.heads * self.head_dim


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


def batches(config: Config, device: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Tokens, which are bytes, and the tokens after them."""
    text = torch.frombuffer(bytearray(story(config.seed)), dtype=torch.uint8)
    draw = torch.Generator().manual_seed(config.seed)
    for _ in range(config.steps):
        starts = torch.randint(len(text) - config.context - 1, (config.batch,), generator=draw)
        rows = torch.stack([text[at : at + config.context + 1] for at in starts.tolist()])
        rows = rows.to(device, torch.int64)
        yield rows[:, :-1], rows[:, 1:]


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
        for weight in self.parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=0.02)

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
) -> list[float]:
    """The loss of each step."""
    torch.compiler.reset()
    torch.manual_seed(config.seed)
    model = GPT(config, attend).to(device)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    optimizer = torch.optim.AdamW(model.parameters(), config.learning_rate, betas=(0.9, 0.95))
    warm_up = max(1, config.steps // 10)
    losses = []
    for step, (tokens, following) in enumerate(batches(config, device)):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * min(1, (step + 1) / warm_up)
        with sdpa_kernel(sdpa), torch.autocast(device, torch.bfloat16):
            loss = compiled(tokens, following)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def end(losses: list[float], last: int = 50) -> float:
    """The mean of the last steps."""
    tail = losses[-last:]
    return sum(tail) / len(tail)


def main(
    config: Config,
    device: str = "cuda",
    backend: str = "inductor",
    picture: Path | None = None,
) -> Curves:
    """Returns the losses of each run."""
    parameters = sum(x.numel() for x in GPT(config, with_sdpa).parameters())
    print(f"{parameters / 1e6:.1f} M parameters, {config.steps} steps")
    curves = {}
    for name, attend, sdpa in (
        ("attune", with_attune, SDPBackend.FLASH_ATTENTION),
        ("sdpa flash", with_sdpa, SDPBackend.FLASH_ATTENTION),
        ("sdpa math", with_sdpa, SDPBackend.MATH),
    ):
        curves[name] = train(config, attend, sdpa, device, backend)
        print(f"{name + ':':12}{curves[name][0]:.4f} at first, {end(curves[name]):.5f} at the end")
    own, flash, math = (end(losses) for losses in curves.values())
    print(f"from sdpa flash: attune {abs(own - flash):.2g}, sdpa math {abs(math - flash):.2g}")
    if picture is not None:
        picture.write_text(drawn(curves), encoding="utf-8")
        print(f"wrote {picture}")
    return curves


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
    parser.add_argument("--picture", type=Path, help="where to draw the losses, as SVG")
    asked = parser.parse_args()
    main(Config(steps=asked.steps, seed=asked.seed), picture=asked.picture)
