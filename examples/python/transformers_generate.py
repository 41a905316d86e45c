"""A model of Hugging Face transformers whose attention is Attune's. Needs transformers 4.53 or newer and a GPU.

The model is small and its weights are random, so that nothing is downloaded. For one of the hub it is
AutoModelForCausalLM.from_pretrained(name, attn_implementation="attune", dtype="auto").
"""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import attune.torch

CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=256,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    attn_implementation="attune",
)


@torch.no_grad()
def main(device: str = "cuda") -> torch.Tensor:
    """Returns the tokens that the model goes on with."""
    attune.torch.register_transformers()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).to(device, torch.float16).eval()
    prompt = torch.arange(20, device=device).reshape(1, 20)
    tokens = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False
    )
    print("tokens:", tokens[0, 20:].tolist())
    return tokens


if __name__ == "__main__":
    main()
