# Written by runtime/python/stubs.py from attune/_functions: change that, not this file.
from typing import Any

from ._arguments import Pair

version: str

def attention(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    rng_state: Any,
) -> Any: ...
def attention_kvpacked(
    q: Any,
    kv: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    rng_state: Any,
) -> Any: ...
def attention_qkvpacked(
    qkv: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    rng_state: Any,
) -> Any: ...
def varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    block_table: Any,
    seqused_q: Any,
    seqused_k: Any,
    out: Any,
    rng_state: Any,
) -> Any: ...
def varlen_kvpacked(
    q: Any,
    kv: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    rng_state: Any,
) -> Any: ...
def varlen_qkvpacked(
    qkv: Any,
    cu_seqlens: Any,
    max_seqlen: int,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    rng_state: Any,
) -> Any: ...
def backward(
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    softmax_lse: Any,
    dsoftmax_lse: Any,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    deterministic: bool | None,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    seqused_q: Any,
    seqused_k: Any,
    dropout_p: float,
    rng_state: Any,
) -> Any: ...
def decode(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any,
    v: Any,
    rotary_cos: Any,
    rotary_sin: Any,
    cache_seqlens: Any,
    cache_batch_idx: Any,
    cache_leftpad: Any,
    block_table: Any,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    rotary_interleaved: bool,
    num_splits: int,
    return_softmax_lse: bool,
    out: Any,
    check_tables: bool,
    cu_seqlens_q: Any,
    max_seqlen_q: int | None,
) -> Any: ...
def store(
    k: Any,
    v: Any,
    k_cache: Any,
    v_cache: Any,
    slot_mapping: Any,
    cache_seqlens: Any,
    cache_batch_idx: Any,
    block_table: Any,
    positions: Any,
    rotary_cos: Any,
    rotary_sin: Any,
    rotary_interleaved: bool,
    check_tables: bool,
) -> None: ...
def merge(
    o1: Any,
    lse1: Any,
    o2: Any,
    lse2: Any,
    return_lse: bool,
    out: Any,
) -> Any: ...
def rotary(
    q: Any,
    k: Any,
    rotary_cos: Any,
    rotary_sin: Any,
    positions: Any,
    seqlen_offsets: Any,
    rotary_interleaved: bool,
) -> None: ...

def xla_prefill() -> Any: ...
def xla_backward() -> Any: ...
def expressed_attention(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    window_size: Pair,
    softcap: float,
    return_attn_probs: bool,
    score: str | None,
    mask: str | None,
    params: dict[str, Any],
) -> Any: ...
def explain(
    bf16: bool, sizes: tuple[int, ...], causal: bool, arch: str | None, ordinal: int | None
) -> dict[str, Any]: ...
def jit(
    bf16: bool, sizes: tuple[int, ...], causal: bool, arch: str | None, ordinal: int | None
) -> str: ...
def counters(emulator: bool | None) -> dict[str, Any]: ...
def finish() -> None: ...
def cache_root() -> str: ...
def cache_list() -> list[tuple[str, str, str, int, bool, str, str]]: ...
def cache_clear() -> int: ...
