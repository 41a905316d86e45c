from typing import Any

version: str

def attention(
    q: Any, k: Any, v: Any, softmax_scale: float | None, causal: bool, return_lse: bool
) -> Any: ...
def attention_kvpacked(
    q: Any, kv: Any, softmax_scale: float | None, causal: bool, return_lse: bool
) -> Any: ...
def attention_qkvpacked(
    qkv: Any, softmax_scale: float | None, causal: bool, return_lse: bool
) -> Any: ...
def decode(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    cache_seqlens: Any,
    cache_batch_idx: Any,
    block_table: Any,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    num_splits: int,
    return_lse: bool,
    out: Any,
) -> Any: ...
def xla_handler() -> Any: ...
def explain(
    bf16: bool, sizes: tuple[int, ...], causal: bool, arch: str | None, ordinal: int | None
) -> dict[str, Any]: ...
def jit(
    bf16: bool, sizes: tuple[int, ...], causal: bool, arch: str | None, ordinal: int | None
) -> str: ...
def cache_root() -> str: ...
def cache_list() -> list[tuple[str, str, str, int, bool, str, str]]: ...
def cache_clear() -> int: ...
