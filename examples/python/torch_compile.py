"""A module of PyTorch that torch.compile takes whole. Needs PyTorch 2.4 or newer and a GPU."""

import torch

import attune.torch


class SelfAttention(torch.nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seqlen, hidden = x.shape
        qkv = self.qkv(x).view(batch, seqlen, 3, self.heads, hidden // self.heads)
        attended = attune.torch.flash_attn_qkvpacked_func(qkv, causal=True)
        return self.out(attended.reshape(x.shape))


@torch.no_grad()
def main(device: str = "cuda", backend: str = "inductor") -> float:
    """Returns the largest difference between the module as it stands and compiled."""
    torch.manual_seed(0)
    module = SelfAttention(hidden=256, heads=4).to(device, torch.float16)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    x = torch.randn(2, 100, 256, dtype=torch.float16, device=device)
    difference = (compiled(x) - module(x)).abs().max().item()
    print(f"compiled and not, on {device}: the largest difference is {difference:.2g}")
    return difference


if __name__ == "__main__":
    main()
