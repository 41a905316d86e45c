"""Attention as an operation of XLA, under jax.jit. Needs JAX with CUDA; where it finds no GPU, the call is traced only."""

import jax
import jax.numpy as jnp

import attune


@jax.jit
def attend(q, k, v):
    return attune.flash_attn_func(q, k, v, causal=True)


def main() -> tuple[int, ...]:
    """Returns the shape of the output."""
    if jax.default_backend() != "gpu":
        array = jax.ShapeDtypeStruct((2, 128, 4, 64), jnp.bfloat16)
        out = jax.eval_shape(attend, array, array, array)
        print("no GPU: traced as", out.shape, out.dtype)
        return out.shape
    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (jax.random.normal(key, (2, 128, 4, 64), jnp.bfloat16) for key in keys)
    out = attend(q, k, v)
    print(out.shape, out.dtype, out.device)
    return out.shape


if __name__ == "__main__":
    main()
