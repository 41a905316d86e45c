"""attune spec-from against transformers' configuration classes: it reads a config.json as they do.

Of each family: the class's default, and checkpoints' fields as they were published; each as written
whole, and with every field left out whose value is the class's default. What a file says is asked
of the class that reads that file.
"""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from model_variants import LACKING, REFUSED, VARIANTS

pytest.importorskip(
    "transformers",
    reason="transformers, whose configuration classes this is held against, is missing",
)
from transformers import CONFIG_MAPPING

ROOT = Path(__file__).parents[2]
TOOL = Path(os.environ.get("ATTUNE_BUILD_DIR", ROOT / "build" / "default")) / "bin" / "attune"

# What the attention of a class does beyond what its configuration names.
WINDOW_IN_EVERY_LAYER = {
    "mistral",
    "ministral3",
    "mixtral",
    "phi3",
    "phimoe",
    "starcoder2",
    "qwen3_moe",
}
HEAD_DIM_IS_QUOTIENT = {
    "stablelm",
    "persimmon",
    "gpt2",
    "opt",
    "bloom",
    "mpt",
    "falcon",
    "gptj",
    "codegen",
    "dbrx",
}
NO_KV_HEADS = {"gpt2", "gpt_neo", "gpt_neox", "opt", "bloom", "mpt", "gptj", "codegen", "persimmon"}
STATE_ALONE = {"mamba", "mamba2", "falcon_mamba"}
UNSERVED_KINDS = {"linear_attention", "chunked_attention"}

# Checkpoints that the tool may read otherwise, and why.
EXCEPTED = {
    (
        "gemma3_text",
        "embeddinggemma-300m",
    ): "its window is of both sides; it is refused, and said to be as it stands there",
}


def forms(family, fields):
    """The files that say the same: whole, without defaults, and as the checkpoint's own."""
    config_class = CONFIG_MAPPING[family]
    whole = config_class.from_dict({"model_type": family, **fields}).to_dict()
    usual = config_class().to_dict()
    sparse = {key: value for key, value in whole.items() if key not in usual or usual[key] != value}
    yield "whole", whole
    yield "sparse", {**sparse, "model_type": family}
    if fields:
        yield "published", {"model_type": family, **fields}


def kinds_and_windows(config):
    layers = config.num_hidden_layers
    window = getattr(config, "sliding_window", None) or 0
    if config.model_type == "gpt_neo":
        kinds = [
            "full_attention" if kind == "global" else "sliding_attention"
            for kind in config.attention_layers
        ]
        window = config.window_size
    elif config.model_type in WINDOW_IN_EVERY_LAYER:
        kinds = ["sliding_attention"] * layers
    else:
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * layers
    for kind in kinds:
        slides = kind == "sliding_attention" and window > 0
        yield (
            (kind if kind in UNSERVED_KINDS or slides else "full_attention"),
            (window if slides else 0),
        )


def heads_kv(config):
    family, heads = config.model_type, config.num_attention_heads
    if family == "falcon":
        return (
            config.num_kv_heads if config.new_decoder_architecture or not config.multi_query else 1
        )
    if family == "gpt_bigcode":
        return 1 if config.multi_query else heads
    if family == "dbrx":
        return config.attn_config.kv_n_heads
    return heads if family in NO_KV_HEADS else config.num_key_value_heads or heads


def head_dims(config):
    if hasattr(config, "qk_nope_head_dim"):
        return config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    quotient = config.hidden_size // config.num_attention_heads
    own = None if config.model_type in HEAD_DIM_IS_QUOTIENT else getattr(config, "head_dim", None)
    return (own or quotient,) * 2


def rotary_dim(config, kind, head_dim):
    """Columns that are rotated; 0 where kernels leave it to the caller, or lack such heads."""
    rope = getattr(config, "rope_parameters", None) or {}
    rope = rope.get(kind, rope)
    if config.model_type in ("gptj", "codegen"):
        columns = config.rotary_dim or head_dim
    elif not rope or hasattr(config, "qk_rope_head_dim") or getattr(config, "alibi", False):
        columns = 0
    else:
        columns = int(head_dim * rope.get("partial_rotary_factor", 1))
    return 0 if columns % 16 or head_dim > 256 else columns


def truth(family, said):
    """Of each layer: kind, heads of Q and K/V, dims of K and V, window, cap, rotated columns."""
    config = CONFIG_MAPPING[family].from_dict(dict(said)).get_text_config(decoder=True)
    if family in STATE_ALONE:
        return []
    softcap = getattr(config, "attn_logit_softcapping", None) or 0
    layers = []
    for (kind, window), layer in zip(
        kinds_and_windows(config), config.per_layer_config, strict=True
    ):
        if kind in UNSERVED_KINDS:
            layers.append((kind,))
        else:
            dims = head_dims(layer)
            rotated = rotary_dim(config, kind, dims[0])
            layers.append(
                (kind, layer.num_attention_heads, heads_kv(layer), *dims, window, softcap, rotated)
            )
    return layers


def as_read(model):
    """The same of what the tool says."""
    layers = {}
    for group in model["groups"]:
        fields = (
            "heads_q",
            "heads_kv",
            "head_dim",
            "head_dim_v",
            "window",
            "softcap",
            "rotary_dim",
        )
        shape = () if group["kind"] in UNSERVED_KINDS else tuple(group[field] for field in fields)
        layers |= {layer: (group["kind"], *shape) for layer in group["layers"]}
    return [layers[layer] for layer in sorted(layers)]


def read(file):
    """What the tool makes of a file; of one that it refuses outright, with exit code 2, why."""
    run = subprocess.run(
        [TOOL, "spec-from", file, "--arch", "sm_90", "--json"],
        check=False,
        capture_output=True,
        text=True,
    )
    if run.returncode == 2:
        return {
            "known": True,
            "served": False,
            "groups": [],
            "lacks": [json.loads(run.stdout)["error"]["message"]],
            "notes": [],
            "assumed": [],
        }
    assert run.returncode in (0, 1), run.stderr  # 1: there are no kernels for it
    return json.loads(run.stdout)["models"][0]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """What the tool reads: (family, checkpoint, form) to (what the file says, the tool's words)."""
    if not TOOL.exists():
        pytest.skip(f"the tool is not built: {TOOL}, of the target attune_tool")
    folder = tmp_path_factory.mktemp("configs")
    files = {}
    for family, variants in VARIANTS.items():
        for checkpoint, fields in {"default": {}, **variants}.items():
            for form, said in forms(family, fields):
                file = folder / f"{len(files)}.json"
                file.write_text(json.dumps(said))
                files[str(file)] = (family, checkpoint, form), json.loads(json.dumps(said))
    with ThreadPoolExecutor() as pool:
        return {
            what: (said, model)
            for (what, said), model in zip(files.values(), pool.map(read, files))
        }


def test_heads_dims_windows_and_caps_are_the_classes_for_forty_families_and_their_checkpoints(
    models, capsys
):
    wrong, right, refused, excepted = {}, set(), set(), set()
    for what, (said, model) in models.items():
        read, expected = as_read(model), truth(what[0], said)
        if what[:2] in EXCEPTED:
            excepted.add(what)
        elif not model["served"] and not read:
            refused.add(what)
        elif read != expected or not model["known"]:
            differing = [
                (i, *pair) for i, pair in enumerate(zip(read, expected)) if pair[0] != pair[1]
            ]
            wrong[what] = differing[:2] or (len(read), len(expected))
        elif model["served"]:
            right.add(what)
        else:
            refused.add(what)
    families = {"right": right, "refused with a reason": refused, "excepted": excepted}
    with capsys.disabled():
        print(f"\n{len(VARIANTS)} families, {len(models)} configs:", end=" ")
        print(
            ", ".join(
                f"{name} {len(of)} ({len({what[0] for what in of})} families)"
                for name, of in families.items()
            )
        )
    assert not wrong
    assert len(VARIANTS) >= 40
    assert all(len(variants) >= 2 for variants in VARIANTS.values())
    assert len({what[0] for what in right}) >= 40
    assert {what[:2] for what in excepted} == EXCEPTED.keys()


def test_what_no_kernel_has_is_named_and_nothing_else_is_refused(models):
    words = (
        "ALiBi",
        "sinks",
        "causal",
        "state",
        "latent",
        "of this kind",
        "head_dim is",
        "no multiple",
    )
    for (family, checkpoint, form), (_, model) in models.items():
        expected = LACKING.get((family, checkpoint), LACKING.get(family))
        said = " ".join(
            [*model["lacks"], *model["notes"], *(group["lacks"] for group in model["groups"])]
        )
        lacking = [word for word in words if word in said]
        assert model["served"] == (family not in REFUSED and (family, checkpoint) not in REFUSED)
        assert lacking == ([expected] if expected else []), (family, checkpoint, form)


def test_what_a_file_leaves_out_is_said_to_be_assumed(models):
    said = models["gemma3", "gemma-3-4b", "published"][1]["assumed"]
    assert "num_attention_heads 8" in said
    assert "num_key_value_heads 4" in said
    assert "head_dim 256" in said
    assert not models["llama", "default", "whole"][1]["assumed"]
