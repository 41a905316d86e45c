"""attn_implementation="attune" in transformers. Skipped, by name, without PyTorch or transformers.

Without a GPU the kernels run in the emulator, behind the same operators.
"""

import inspect
import re

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", "4.53")
import attune.torch

pytest_plugins = "torch_device"
attune.torch.register_transformers()

VOCABULARY = 32
PROMPT = 20
NEW_TOKENS = 10


def llama(implementation, device, dtype=torch.float16, config=transformers.LlamaConfig, **options):
    """Random weights, the same each time; heads of 64 in groups of two.

    Their scale and seed were chosen for tokens that vary and that are no near-ties.
    """
    torch.manual_seed(27)
    options = {
        "vocab_size": VOCABULARY,
        "hidden_size": 256,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "initializer_range": 0.1,
        "max_position_embeddings": 128,
        "attn_implementation": implementation,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    } | options
    model = transformers.AutoModelForCausalLM.from_config(config(**options))
    return model.to(device, dtype).eval()


def prompt(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(VOCABULARY, (2, PROMPT), generator=generator).to(device)


def greedy(model, tokens, **options):
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False} | options
    return model.generate(tokens, attention_mask=torch.ones_like(tokens), **options)


def decode(step, tokens):
    """Greedy decoding by a loop, with a cache and without an attention_mask."""
    cache = transformers.DynamicCache()
    new = tokens
    for _ in range(NEW_TOKENS):
        logits = step(new, past_key_values=cache, use_cache=True).logits
        new = logits[:, -1:].argmax(-1)
        tokens = torch.cat([tokens, new], 1)
    return tokens


def assert_close_to_sdpa(logits, sdpa_logits, exact):
    """Error against float32 at most 1.5 times that of sdpa with the same weights."""
    error = (logits.float() - exact).abs().max()
    sdpa_error = (sdpa_logits.float() - exact).abs().max()
    assert 0 < error <= 1.5 * sdpa_error


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_greedy_tokens_are_those_of_sdpa(torch_device, dtype):
    sdpa, ours = (llama(name, torch_device, dtype) for name in ("sdpa", "attune"))
    float32 = llama("sdpa", torch_device, dtype).float()
    tokens = greedy(float32, prompt(torch_device))
    exact = float32(tokens).logits
    logits, sdpa_logits = ours(tokens).logits, sdpa(tokens).logits
    assert_close_to_sdpa(logits, sdpa_logits, exact)

    chosen = slice(PROMPT - 1, -1)
    first, second = exact[:, chosen].topk(2).values.unbind(-1)
    for result in (logits, sdpa_logits):
        error = (result.float() - exact)[:, chosen].abs().amax(-1)
        assert (first - second > 2 * error).all(), "a near-tie: the test needs other weights"
    assert len(tokens[:, PROMPT:].unique()) > 5
    assert torch.equal(greedy(sdpa, prompt(torch_device)), tokens)
    assert torch.equal(greedy(ours, prompt(torch_device)), tokens)
    assert torch.equal(decode(ours, prompt(torch_device)), tokens)


@torch.no_grad()
def test_prefill_in_chunks(torch_device):
    tokens = prompt(torch_device)
    sdpa, ours = (llama(name, torch_device) for name in ("sdpa", "attune"))
    cache = transformers.DynamicCache()
    chunks = [ours(chunk, past_key_values=cache).logits for chunk in tokens.split([7, 9, 4], 1)]
    exact = llama("sdpa", torch_device).float()(tokens).logits
    assert_close_to_sdpa(torch.cat(chunks, 1), sdpa(tokens).logits, exact)


@torch.no_grad()
def test_compiles_into_one_graph(torch_device, backend):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    sdpa_logits = llama("sdpa", torch_device)(tokens).logits
    exact = llama("sdpa", torch_device).float()(tokens).logits
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    assert_close_to_sdpa(compiled(tokens).logits, sdpa_logits, exact)


@torch.no_grad()
def test_decodes_when_compiled(torch_device, backend):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend=backend)
    assert torch.equal(decode(compiled, tokens), decode(model, tokens))


@torch.no_grad()
def test_bidirectional_layers(torch_device):
    torch.manual_seed(0)
    layer = torch.nn.Module()
    layer.is_causal = False
    attend = transformers.AttentionInterface()["attune"]
    q, k, v = (torch.randn(1, heads, 30, 64).to(torch_device).half() for heads in (4, 2, 2))
    for causal in (None, True):
        out, weights = attend(layer, q, k, v, None, scaling=0.1, is_causal=causal)
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.float(), k.float(), v.float(), scale=0.1, is_causal=bool(causal), enable_gqa=True
        )
        torch.testing.assert_close(out.float(), expected.transpose(1, 2), rtol=2e-3, atol=2e-3)
        assert out.is_contiguous()
        assert weights is None


@torch.no_grad()
def test_autocast(torch_device):
    tokens = prompt(torch_device)
    sdpa, ours = (llama(name, torch_device, torch.float32) for name in ("sdpa", "attune"))
    exact = sdpa(tokens).logits
    with torch.autocast(torch_device, torch.bfloat16):
        assert_close_to_sdpa(ours(tokens).logits, sdpa(tokens).logits, exact)


def test_gradients(torch_device):
    tokens = prompt(torch_device)
    found = {}
    for name in ("sdpa", "attune"):
        model = llama(name, torch_device)
        model(tokens, labels=tokens).loss.backward()
        found[name] = model.model.layers[0].self_attn.k_proj.weight.grad.float()
    scale = found["sdpa"].abs().max()
    assert (found["attune"] - found["sdpa"]).abs().max() <= 0.02 * scale


@torch.no_grad()
def test_padding_is_refused(torch_device):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    with pytest.raises(NotImplementedError, match="attention_mask hides tokens"):
        model.generate(tokens, attention_mask=mask, max_new_tokens=2)
    with pytest.raises(NotImplementedError, match="attention_mask hides tokens"):
        model(tokens, attention_mask=mask)


@torch.no_grad()
def test_masks_of_the_callers_own_are_refused(torch_device):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    mask = torch.zeros(2, 1, PROMPT, PROMPT, dtype=torch.float16, device=torch_device)
    with pytest.raises(
        NotImplementedError, match=re.escape("attention_mask has shape (2, 1, 20, ")
    ):
        model(tokens, attention_mask=mask)


@torch.no_grad()
def test_packed_sequences_are_refused(torch_device):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    positions = torch.cat([torch.arange(8), torch.arange(PROMPT - 8)]).to(torch_device)
    with pytest.raises(NotImplementedError, match="no packed sequences"):
        model(tokens, position_ids=positions.expand(2, -1), use_cache=False)
    boundaries = torch.tensor([0, 8, PROMPT], device=torch_device)
    with pytest.raises(NotImplementedError, match="no attention with cu_seq_lens_q yet"):
        model(tokens, cu_seq_lens_q=boundaries, cu_seq_lens_k=boundaries)


@torch.no_grad()
def test_static_caches_are_refused(torch_device):
    model, tokens = llama("attune", torch_device), prompt(torch_device)
    cache = transformers.StaticCache(model.config, max_batch_size=2, max_cache_len=64)
    with pytest.raises(NotImplementedError, match="StaticCache"):
        model(tokens, past_key_values=cache)
    with pytest.raises(NotImplementedError, match="StaticCache|hides tokens"):
        greedy(model, tokens, cache_implementation="static")


@torch.no_grad()
def test_sliding_windows(torch_device):
    model = llama(
        "attune", torch_device, config=transformers.MistralConfig, sliding_window=PROMPT + 2
    )
    sdpa = llama("sdpa", torch_device, config=transformers.MistralConfig, sliding_window=PROMPT + 2)
    tokens = prompt(torch_device)
    assert torch.equal(
        greedy(model, tokens, max_new_tokens=3), greedy(sdpa, tokens, max_new_tokens=3)
    )
    assert torch.equal(greedy(model, tokens), greedy(sdpa, tokens))  # beyond the window


#: Models whose attention does more than Llama's, and what their small ones need beside `llama`'s options.
MORE = {
    "gpt-oss: sinks and windows": (
        "GptOssConfig",
        {"sliding_window": 13, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "Gemma 2: soft caps and windows": (
        "Gemma2Config",
        {"sliding_window": 13, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 64},
    ),
}


def test_gradients_of_sinks_and_beside_them(torch_device):
    if not hasattr(transformers, "GptOssConfig"):
        pytest.skip("this version of transformers has no gpt-oss")
    _, options = MORE["gpt-oss: sinks and windows"]
    tokens, found = prompt(torch_device), {}
    for name in ("eager", "attune"):
        model = llama(name, torch_device, config=transformers.GptOssConfig, **options)
        with torch.no_grad():
            for layer in model.model.layers:
                layer.self_attn.sinks.copy_(torch.linspace(-1, 3, layer.self_attn.sinks.numel()))
        model(tokens, labels=tokens).loss.backward()
        attention = model.model.layers[0].self_attn
        found[name] = attention.sinks.grad.float(), attention.k_proj.weight.grad.float()
    for ours, right in zip(found["attune"], found["eager"]):
        assert right.any()
        assert (ours - right).abs().max() <= 0.03 * right.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("which", MORE)
def test_greedy_tokens_are_those_of_eager_attention(which, torch_device):
    name, options = MORE[which]
    options = options | {"tie_word_embeddings": False}  # or the last token comes again and again
    if not hasattr(transformers, name):
        pytest.skip(f"this version of transformers has no {name}")
    config = getattr(transformers, name)
    models = [
        llama(one, torch_device, torch.float32, config, **options) for one in ("eager", "attune")
    ]
    for model in models:
        for parameter, value in model.named_parameters():
            if parameter.endswith("sinks"):
                value.copy_(torch.linspace(-1, 3, value.numel()))
    exact = greedy(models[0], prompt(torch_device))
    found = models[1].half()
    tokens = greedy(found, prompt(torch_device))
    assert len(exact[:, PROMPT:].unique()) > 3
    assert torch.equal(tokens, exact)
    without = llama(
        "attune", torch_device, config=config, **options
    )  # of other sinks, and soft caps
    without.load_state_dict(found.state_dict())
    for layer in without.modules():
        for lacking in ("sinks", "attn_logit_softcapping"):
            if hasattr(layer, lacking):
                setattr(layer, lacking, None)
    assert not torch.allclose(without(exact).logits, found(exact).logits, atol=1e-2)


def attend_with_slopes(self, hidden_states, position_bias, cache=None, past_key_values=None, **_):
    """MptAttention.forward on attune.torch, whose slopes the model's own bias holds."""
    batch, rows = hidden_states.shape[:2]
    q, k, v = self.Wqkv(hidden_states).chunk(3, 2)
    q, k, v = (
        x.reshape(batch, rows, self.n_heads, self.head_dim).transpose(1, 2) for x in (q, k, v)
    )
    cache = past_key_values if cache is None else cache  # by its name before transformers 5.24
    if cache is not None:
        k, v = cache.update(k, v, self.layer_idx)
    slopes = -position_bias[:, 0, -2].float().contiguous()  # of the key before the last
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = attune.torch.flash_attn_func(
        q, k, v, softmax_scale=self.softmax_scale, causal=True, alibi_slopes=slopes
    )
    return self.out_proj(out.flatten(2)), None


@torch.no_grad()
def test_greedy_tokens_of_slopes_are_those_of_eager_attention(torch_device, monkeypatch):
    """MPT asks no attention implementation: its attention is replaced as a program would."""
    torch.manual_seed(4)
    config = transformers.MptConfig(
        vocab_size=VOCABULARY,
        d_model=256,
        n_heads=4,
        n_layers=2,
        max_seq_len=128,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    model = transformers.MptForCausalLM(config).to(torch_device).eval()
    exact = greedy(model, prompt(torch_device))
    logits = model(exact).logits
    monkeypatch.setattr(
        transformers.models.mpt.modeling_mpt.MptAttention, "forward", attend_with_slopes
    )
    model.half()
    assert len(exact[:, PROMPT:].unique()) > 3
    assert torch.equal(greedy(model, prompt(torch_device)), exact)
    error = (model(exact).logits.float() - logits).abs().max()
    assert error <= 0.02 * logits.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("config", [transformers.BloomConfig, transformers.MptConfig])
def test_models_that_compute_attention_themselves_are_refused(config, torch_device):
    """They add ALiBi to scores of their own; without a mask, which is not made, each token would see those after it."""
    options = {"n_layers": 1, "n_heads": 2, "hidden_size": 64, "vocab_size": VOCABULARY}
    for named in (options, options | {"attn_implementation": "eager"}):
        model = transformers.AutoModelForCausalLM.from_config(
            config(**{"attn_implementation": "attune"} | named)
        ).to(torch_device)
        if "attn_implementation" in named:
            assert model(prompt(torch_device)).logits.isfinite().all()
            continue
        message = f"attention of {model.config.model_type} models asks for no implementation"
        with pytest.raises(NotImplementedError, match=message):
            model(prompt(torch_device))


@torch.no_grad()
def test_dropout_follows_the_generator(torch_device):
    model = llama("attune", torch_device, attention_dropout=0.25)
    tokens = prompt(torch_device)
    whole = model(tokens).logits
    model.train()
    dropped = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        dropped.append(model(tokens).logits)
    assert torch.equal(dropped[0], dropped[1])
    assert not torch.equal(dropped[0], dropped[2])
    assert not torch.equal(dropped[0], whole)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"position_bias": torch.zeros(1, 2, 8, 8)}, "no attention with position_bias yet"),
        ({"output_attentions": True}, "no attention with output_attentions yet"),
        ({"an_argument_of_a_later_version": 1}, "with an_argument_of_a_later_version yet"),
        ({"sliding_window": 7, "is_causal": False}, "sliding_window is 7, and there are 8 keys"),
    ],
)
def test_arguments_that_are_not_served(option, message):
    attend = transformers.AttentionInterface()["attune"]
    q = torch.empty(1, 2, 8, 64, dtype=torch.float16, device="meta")
    with pytest.raises(NotImplementedError, match=message):
        attend(torch.nn.Module(), q, q, q, None, **option)
    harmless = {name: None for name in option} | {"position_ids": q, "use_cache": True}
    out, _ = attend(torch.nn.Module(), q, q, q, None, **harmless)
    assert out.shape == (1, 8, 2, 64)


def test_masks_that_need_their_own_kernel_are_refused():
    """Positions as every version of transformers gives them."""
    from transformers.masking_utils import AttentionMaskInterface, causal_mask_function

    make = AttentionMaskInterface()["attune"]
    options = {"mask_function": causal_mask_function, "attention_mask": None, "batch_size": 1}
    assert make(kv_length=9, q_length=4, q_offset=5, **options) is None
    assert make(kv_length=9, cache_position=torch.arange(5, 9), **options) is None
    assert make(kv_length=9, cache_position=torch.arange(9), **options) is None
    assert make(kv_length=4, kv_offset=5, q_length=1, q_offset=8, **options) is None
    for position in (
        {"q_length": 4, "q_offset": 4},
        {"q_length": 4, "q_offset": torch.tensor(4)},
        {"cache_position": torch.arange(4, 8)},
    ):
        with pytest.raises(NotImplementedError, match="8 of 9 keys are written"):
            make(kv_length=9, **position, **options)
    with pytest.raises(NotImplementedError, match="attention_mask hides tokens"):
        short = options | {"attention_mask": torch.ones(1, 8, dtype=torch.bool)}
        make(kv_length=9, q_length=9, q_offset=0, **short)
    options["mask_function"] = lambda *indices: causal_mask_function(*indices)
    with pytest.raises(NotImplementedError, match="only causal and full masks"):
        make(kv_length=9, q_length=9, q_offset=0, **options)
    full = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": True}
    assert make(kv_length=9, q_length=4, q_offset=0, **full, **options) is None


def test_registers_functions_that_are_documented():
    for function in (
        transformers.AttentionInterface()["attune"],
        transformers.masking_utils.AttentionMaskInterface()["attune"],
    ):
        for name in inspect.signature(function).parameters:
            assert f"    {name}: " in function.__doc__
