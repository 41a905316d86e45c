"""apply_rotary in attune.torch: what it computes, and what torch.compile and autograd see of it.

Skipped, by name, without PyTorch. Without a GPU the kernels run in the emulator, behind the same operator.
"""

import numpy as np
import pytest
from cached import int32
from test_kvcache_torch import gpu
from test_rotary import both_styles, queries_and_keys
from test_store import angles

import attune

torch = pytest.importorskip("torch")
library = pytest.importorskip("attune.torch")
from torch._dynamo.testing import CompileCounterWithBackend

pytest_plugins = "torch_device"


def on(device, *arrays):
    """Copies, which the tests write."""
    return [torch.from_numpy(one.copy()).to(device) for one in arrays]


def assert_near(tensors, arrays):
    for one, other in zip(tensors, arrays, strict=True):
        np.testing.assert_allclose(one.cpu().numpy(), other, rtol=2e-3, atol=2e-3)


@both_styles
@pytest.mark.parametrize(
    "options",
    [{}, {"seqlen_offsets": int32([5, 29])}, {"positions": int32([[3, 0, 31], [9, 9, 4]])}],
    ids=["first", "offsets", "positions"],
)
def test_tensors_are_rotated_as_arrays_are(torch_device, interleaved, options):
    q, k = queries_and_keys()
    cos, sin = angles()
    on_q, on_k, on_cos, on_sin = on(torch_device, q, k, cos, sin)
    named = dict(zip(options, on(torch_device, *options.values())))
    library.apply_rotary(on_q, on_k, on_cos, on_sin, **named, rotary_interleaved=interleaved)
    attune.apply_rotary(q, k, cos, sin, **options, rotary_interleaved=interleaved)
    assert_near((on_q, on_k), (q, k))


@pytest.mark.parametrize("with_keys", [True, False])
def test_the_operator_keeps_its_schema_and_its_fake_agrees(torch_device, with_keys):
    q, k, cos, sin = on(torch_device, *queries_and_keys(), *angles())
    arguments = (q, k if with_keys else None, cos, sin)
    torch.library.opcheck(torch.ops.attune.apply_rotary.default, arguments)


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_compiled_step_rotates_its_tensors(torch_device, backend, with_keys):
    counter = CompileCounterWithBackend(backend)

    def step(packed, cos, sin, positions):
        packed = packed * 2
        q, k = packed[:, :, :4], packed[:, :, 4:]
        library.apply_rotary(q, k if with_keys else None, cos, sin, positions=positions)
        return packed + 1

    q, k = queries_and_keys()
    packed, cos, sin = on(torch_device, np.concatenate([q, k], axis=2), *angles())
    compiled = torch.compile(step, fullgraph=True, backend=counter)
    for given in ([[0, 1, 2], [3, 4, 5]], [[7, 9, 1], [31, 0, 8]]):
        (positions,) = on(torch_device, int32(given))
        expected = step(packed, cos, sin, positions)
        assert torch.equal(compiled(packed, cos, sin, positions), expected)
        assert torch.equal(expected[:, :, 4:], packed[:, :, 4:] * 2 + 1) is not with_keys
    assert counter.frame_count == 1


@gpu
def test_a_captured_step_rotates_by_the_positions_of_each_replay():
    arrays = *queries_and_keys(), *angles()
    q, k, cos, sin, positions = on("cuda", *arrays, int32([[0] * 3] * 2))

    def step():
        attune.apply_rotary(q, k, cos, sin, positions=positions)

    step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    for given in ([[3, 0, 31], [9, 9, 4]], [[0, 1, 2], [32, -1, 7]]):
        expected = [one.copy() for one in arrays]
        for tensor, new in zip((q, k, positions), on("cuda", *arrays[:2], int32(given))):
            tensor.copy_(new)
        graph.replay()
        attune.apply_rotary(*expected, positions=int32(given))
        assert_near((q, k), expected[:2])


def test_gradients_are_refused_by_the_fake():
    q = torch.empty(2, 8, 2, 64, device="meta", dtype=torch.float16)
    cos = torch.empty(8, 16, device="meta", dtype=torch.float16)
    leaf = torch.empty_like(q, requires_grad=True)
    with pytest.raises(NotImplementedError, match="q requires a gradient"):
        library.apply_rotary(leaf, None, cos, cos)
    with pytest.raises(NotImplementedError, match="k requires a gradient"):
        library.apply_rotary(q, leaf, cos, cos)


def test_what_is_no_tensor_is_named():
    q = torch.empty(2, 8, 2, 64, dtype=torch.float16)
    with pytest.raises(TypeError, match="q is a NoneType; it must be a torch.Tensor"):
        library.apply_rotary(None, q, q, q)
    with pytest.raises(TypeError, match="k is a float; it must be a torch.Tensor"):
        library.apply_rotary(q, 1.0, q, q)
    with pytest.raises(TypeError, match="rotary_sin is a list; it must be a torch.Tensor"):
        library.apply_rotary(q, None, q, [])
