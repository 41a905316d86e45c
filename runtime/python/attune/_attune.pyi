version: str

class NoDeviceError(RuntimeError): ...

def prefill(
    emulator: bool,
    bf16: bool,
    sizes: tuple[int, int, int, int, int, int],
    q: int,
    q_strides: tuple[int, ...],
    k: int,
    k_strides: tuple[int, ...],
    v: int,
    v_strides: tuple[int, ...],
    o: int,
    o_strides: tuple[int, ...],
    lse: int,
    softmax_scale: float,
    causal: bool,
    stream: int,
) -> None: ...
