"""Well-known checkpoints' fields of attention, as their config.json has them, by family."""


def every(period, last="full_attention", others="sliding_attention", layers=32):
    return [last if (i + 1) % period == 0 else others for i in range(layers)]


def llama_like(hidden, heads, heads_kv, layers, **more):
    fields = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    return fields | ({} if heads_kv is None else {"num_key_value_heads": heads_kv}) | more


def n_embd(hidden, heads, layers, **more):
    return {"n_embd": hidden, "n_head": heads, "n_layer": layers, **more}


def latent(hidden, heads, layers, **more):
    ranks = {
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    }
    return llama_like(hidden, heads, heads, layers, **ranks, **more)


HYBRID_LAYERS = ["attention" if i % 10 == 5 else "mamba" for i in range(40)]

VARIANTS = {
    "llama": {
        "Llama-2-7b": llama_like(
            4096, 32, 32, 32, max_position_embeddings=4096, torch_dtype="float16"
        ),
        "Llama-3.1-70B": llama_like(
            8192, 64, 8, 80, max_position_embeddings=131072, rope_theta=500000.0
        ),
    },
    "mistral": {
        "Mistral-7B-v0.1": llama_like(
            4096, 32, 8, 32, sliding_window=4096, max_position_embeddings=32768
        ),
        "Mistral-7B-v0.3": llama_like(
            4096, 32, 8, 32, sliding_window=None, max_position_embeddings=32768
        ),
        "Mistral-Nemo": llama_like(5120, 32, 8, 40, sliding_window=None, head_dim=128),
    },
    "ministral3": {
        "Ministral-3-8B": llama_like(4096, 32, 8, 34, head_dim=128, sliding_window=None),
        "Ministral-3-14B": llama_like(5120, 32, 8, 40, head_dim=128, sliding_window=None),
    },
    "mixtral": {
        "Mixtral-8x7B": llama_like(
            4096, 32, 8, 32, sliding_window=None, max_position_embeddings=32768
        ),
        "Mixtral-8x22B": llama_like(
            6144, 48, 8, 56, sliding_window=None, max_position_embeddings=65536
        ),
    },
    "qwen2": {
        "Qwen2.5-7B": llama_like(
            3584, 28, 4, 28, sliding_window=131072, use_sliding_window=False, max_window_layers=28
        ),
        "Qwen2.5-0.5B": llama_like(
            896, 14, 2, 24, sliding_window=32768, use_sliding_window=False, max_window_layers=24
        ),
        "windows from layer 20": llama_like(
            3584, 28, 4, 28, use_sliding_window=True, max_window_layers=20
        ),
    },
    "qwen2_moe": {
        "Qwen1.5-MoE-A2.7B": llama_like(
            2048, 16, 16, 24, sliding_window=32768, use_sliding_window=False, max_window_layers=21
        ),
        "Qwen2-57B-A14B": llama_like(
            3584, 28, 4, 28, sliding_window=65536, use_sliding_window=False, max_window_layers=28
        ),
        "windows to layer 10": llama_like(
            3584, 28, 4, 28, use_sliding_window=True, max_window_layers=10
        ),
    },
    "qwen3": {
        "Qwen3-8B": llama_like(
            4096, 32, 8, 36, head_dim=128, use_sliding_window=False, max_window_layers=36
        ),
        "Qwen3-0.6B": llama_like(
            1024, 16, 8, 28, head_dim=128, use_sliding_window=False, max_window_layers=28
        ),
    },
    "qwen3_moe": {
        "Qwen3-30B-A3B": llama_like(
            2048, 32, 4, 48, head_dim=128, use_sliding_window=False, sliding_window=None
        ),
        "Qwen3-235B-A22B": llama_like(
            4096, 64, 4, 94, head_dim=128, use_sliding_window=False, sliding_window=None
        ),
    },
    "qwen3_next": {
        "Qwen3-Next-80B-A3B": llama_like(2048, 16, 2, 48, head_dim=256, full_attention_interval=4),
        "every sixth": llama_like(2048, 16, 2, 48, head_dim=256, full_attention_interval=6),
    },
    "gemma": {
        "gemma-2b": llama_like(2048, 8, 1, 18, head_dim=256),
        "gemma-7b": llama_like(3072, 16, 16, 28, head_dim=256),
    },
    "gemma2": {
        "gemma-2-9b": llama_like(
            3584, 16, 8, 42, head_dim=256, sliding_window=4096, attn_logit_softcapping=50.0
        ),
        "gemma-2-27b": llama_like(
            4608, 32, 16, 46, head_dim=128, sliding_window=4096, attn_logit_softcapping=50.0
        ),
        "without a cap": llama_like(3584, 16, 8, 42, attn_logit_softcapping=None),
    },
    "gemma3": {
        "gemma-3-12b": {
            "text_config": {
                "model_type": "gemma3_text",
                **llama_like(3840, 16, 8, 48, sliding_window=1024),
            }
        },
        "gemma-3-4b": {
            "text_config": {
                "hidden_size": 2560,
                "model_type": "gemma3_text",
                "num_hidden_layers": 34,
                "sliding_window": 1024,
            }
        },
        "gemma-3-27b": {
            "text_config": {
                "model_type": "gemma3_text",
                **llama_like(5376, 32, 16, 62, head_dim=128, sliding_window=1024),
            }
        },
    },
    "gemma3_text": {
        "gemma-3-1b": llama_like(
            1152, 4, 1, 26, head_dim=256, sliding_window=512, sliding_window_pattern=6
        ),
        "gemma-3-270m": llama_like(
            640, 4, 1, 18, head_dim=256, sliding_window=512, _sliding_window_pattern=6
        ),
        "embeddinggemma-300m": llama_like(
            768, 3, 1, 24, head_dim=256, sliding_window=512, use_bidirectional_attention=True
        ),
    },
    "gemma3n_text": {
        "gemma-3n-E4B": llama_like(2048, 8, 2, 35, head_dim=256, sliding_window=512),
        "gemma-3n-E2B": llama_like(
            2048, 8, 2, 30, head_dim=256, sliding_window=512, intermediate_size=[8192] * 30
        ),
    },
    "gemma4_text": {
        "all heads global": llama_like(
            2560, 8, 2, 42, head_dim=256, global_head_dim=512, sliding_window=512
        ),
        "few heads global": llama_like(
            5376,
            32,
            16,
            60,
            attention_k_eq_v=True,
            num_global_key_value_heads=4,
            sliding_window=1024,
        ),
    },
    "phi": {
        "phi-2": llama_like(2560, 32, 32, 32, partial_rotary_factor=0.4),
        "phi-1_5": llama_like(2048, 32, None, 24, partial_rotary_factor=0.5),
    },
    "phi3": {
        "Phi-3-mini-4k": llama_like(3072, 32, 32, 32, sliding_window=2047),
        "Phi-3-medium-4k": llama_like(5120, 40, 10, 40, sliding_window=2047),
        "phi-4": llama_like(5120, 40, 10, 40, sliding_window=None, max_position_embeddings=16384),
    },
    "phimoe": {
        "Phi-3.5-MoE": llama_like(4096, 32, 8, 32, sliding_window=131072),
        "Phi-tiny-MoE": llama_like(4096, 16, 4, 32, sliding_window=2047),
    },
    "falcon": {
        "falcon-7b": llama_like(
            4544,
            71,
            None,
            32,
            alibi=False,
            multi_query=True,
            new_decoder_architecture=False,
            num_kv_heads=71,
        ),
        "falcon-40b": llama_like(
            8192,
            128,
            None,
            60,
            alibi=False,
            multi_query=True,
            new_decoder_architecture=True,
            num_kv_heads=8,
        ),
        "falcon-rw-1b": llama_like(
            2048,
            32,
            None,
            24,
            alibi=True,
            multi_query=False,
            new_decoder_architecture=False,
            num_kv_heads=32,
        ),
    },
    "gpt2": {
        "gpt2-medium": n_embd(1024, 16, 24, n_positions=1024),
        "gpt2-xl": n_embd(1600, 25, 48, n_positions=1024),
    },
    "gpt_neo": {
        "gpt-neo-1.3B": {
            "hidden_size": 2048,
            "num_heads": 16,
            "num_layers": 24,
            "attention_types": [[["global", "local"], 12]],
            "window_size": 256,
        },
        "gpt-neo-125m": {
            "hidden_size": 768,
            "num_heads": 12,
            "num_layers": 12,
            "attention_types": [[["global", "local"], 6]],
            "window_size": 256,
        },
    },
    "gpt_neox": {
        "gpt-neox-20b": llama_like(6144, 64, None, 44, rotary_pct=0.25),
        "pythia-1b": llama_like(2048, 8, None, 16, rotary_pct=0.25),
    },
    "gptj": {
        "gpt-j-6b": n_embd(4096, 16, 28, n_positions=2048, rotary_dim=64),
        "GPT-JT-6B": n_embd(4096, 16, 28, rotary_dim=64, rotary=True),
    },
    "opt": {"opt-1.3b": llama_like(2048, 32, None, 24), "opt-30b": llama_like(7168, 56, None, 48)},
    "bloom": {
        "bloom-560m": {"n_embed": 1024, "n_layer": 24, "num_attention_heads": 16},
        "bloom": {"n_embed": 14336, "n_layer": 70, "num_attention_heads": 112},
    },
    "mpt": {
        "mpt-7b": {"d_model": 4096, "n_heads": 32, "n_layers": 32, "attn_config": {"alibi": True}},
        "mpt-30b": {"d_model": 7168, "n_heads": 64, "n_layers": 48, "attn_config": {"alibi": True}},
    },
    "codegen": {
        "codegen-350M": n_embd(1024, 16, 20, rotary_dim=32, n_positions=2048),
        "codegen-16B": n_embd(6144, 24, 34, rotary_dim=64, n_positions=2048),
    },
    "stablelm": {
        "stablelm-3b-4e1t": llama_like(2560, 32, 32, 32, partial_rotary_factor=0.25),
        "stablelm-2-12b": llama_like(5120, 32, 8, 40, partial_rotary_factor=0.25),
    },
    "starcoder2": {
        "starcoder2-3b": llama_like(
            3072, 24, 2, 30, sliding_window=4096, max_position_embeddings=16384
        ),
        "starcoder2-15b": llama_like(
            6144, 48, 4, 40, sliding_window=4096, max_position_embeddings=16384
        ),
    },
    "gpt_bigcode": {
        "starcoder": n_embd(6144, 48, 40, multi_query=True, n_positions=8192),
        "gpt_bigcode-santacoder": n_embd(2048, 16, 24, multi_query=True, n_positions=2048),
        "heads of their own": n_embd(2048, 16, 24, multi_query=False),
    },
    "cohere": {
        "command-r": llama_like(8192, 64, 64, 40),
        "command-r-plus": llama_like(12288, 96, 8, 64),
    },
    "cohere2": {
        "command-r7b": llama_like(4096, 32, 8, 32, sliding_window=4096, sliding_window_pattern=4),
        "command-a": llama_like(
            12288, 96, 8, 64, sliding_window=4096, layer_types=every(4, layers=64)
        ),
    },
    "olmo": {"OLMo-1B": llama_like(2048, 16, 16, 16), "OLMo-7B": llama_like(4096, 32, 32, 32)},
    "olmo2": {"OLMo-2-7B": llama_like(4096, 32, 32, 32), "OLMo-2-32B": llama_like(5120, 40, 8, 64)},
    "olmo3": {
        "Olmo-3-7B": llama_like(
            4096, 32, 32, 32, sliding_window=4096, max_position_embeddings=65536
        ),
        "Olmo-3-32B": llama_like(
            5120, 40, 8, 64, sliding_window=4096, layer_types=every(4, layers=64)
        ),
    },
    "olmoe": {
        "OLMoE-1B-7B-0924": llama_like(2048, 16, 16, 16),
        "OLMoE-1B-7B-0125": llama_like(2048, 16, 16, 16, max_position_embeddings=4096),
    },
    "granite": {
        "granite-3.1-2b": llama_like(2048, 32, 8, 40, attention_multiplier=0.015625),
        "granite-3.3-8b": llama_like(4096, 32, 8, 40, attention_multiplier=0.0078125),
    },
    "granitemoe": {
        "granite-3.0-1b-a400m": llama_like(1024, 16, 8, 24),
        "granite-3.0-3b-a800m": llama_like(1536, 24, 8, 32),
    },
    "granitemoehybrid": {
        "granite-4.0-h-small": llama_like(4096, 32, 8, 40, layer_types=HYBRID_LAYERS),
        "granite-4.0-h-tiny": llama_like(
            1536, 12, 4, 40, layer_types=HYBRID_LAYERS, mamba_n_heads=48
        ),
    },
    "deepseek_v2": {
        "DeepSeek-V2-Lite": latent(2048, 16, 27, q_lora_rank=None),
        "DeepSeek-V2": latent(5120, 128, 60, q_lora_rank=1536),
    },
    "deepseek_v3": {
        "DeepSeek-V3": latent(7168, 128, 61, q_lora_rank=1536),
        "Moonlight-16B-A3B": latent(2048, 16, 27, q_lora_rank=None),
    },
    "glm": {
        "glm-4-9b-chat-hf": llama_like(4096, 32, 2, 40, head_dim=128, partial_rotary_factor=0.5),
        "glm-edge-1.5b": llama_like(2048, 16, 4, 28, head_dim=128, partial_rotary_factor=1.0),
    },
    "glm4": {
        "GLM-4-9B-0414": llama_like(4096, 32, 2, 40, head_dim=128, partial_rotary_factor=0.5),
        "GLM-4-32B-0414": llama_like(6144, 48, 2, 61, head_dim=128, partial_rotary_factor=0.5),
    },
    "glm4_moe": {
        "GLM-4.5": llama_like(5120, 96, 8, 92, head_dim=128, partial_rotary_factor=0.5),
        "GLM-4.5-Air": llama_like(4096, 96, 8, 46, head_dim=128, partial_rotary_factor=0.5),
    },
    "gpt_oss": {
        "gpt-oss-20b": llama_like(
            2880, 64, 8, 24, head_dim=64, sliding_window=128, layer_types=every(2, layers=24)
        ),
        "gpt-oss-120b": llama_like(2880, 64, 8, 36, head_dim=64, sliding_window=128),
    },
    "llama4": {
        "Llama-4-Scout": {
            "text_config": {
                "model_type": "llama4_text",
                **llama_like(
                    5120, 40, 8, 48, head_dim=128, attention_chunk_size=8192, no_rope_layers=[]
                ),
            }
        },
        "Llama-4-Maverick": {
            "text_config": {
                "model_type": "llama4_text",
                **llama_like(
                    5120, 40, 8, 48, attention_chunk_size=8192, interleave_moe_layer_step=2
                ),
            }
        },
        "without chunks": {
            "text_config": {
                "model_type": "llama4_text",
                **llama_like(5120, 40, 8, 48, attention_chunk_size=None),
            }
        },
    },
    "smollm3": {
        "SmolLM3-3B": llama_like(
            2048, 16, 4, 36, no_rope_layers=[1, 1, 1, 0] * 9, use_sliding_window=False
        ),
        "windows": llama_like(2048, 16, 4, 36, use_sliding_window=True, sliding_window=4096),
    },
    "exaone4": {
        "EXAONE-4.0-32B": llama_like(
            5120, 40, 8, 64, head_dim=128, sliding_window=4096, layer_types=every(4, layers=64)
        ),
        "EXAONE-4.0-1.2B": llama_like(
            2048, 32, 8, 30, head_dim=64, sliding_window=None, layer_types=["full_attention"] * 30
        ),
    },
    "ernie4_5": {
        "ERNIE-4.5-0.3B": llama_like(1024, 16, 2, 18, head_dim=128),
        "head_dim omitted": llama_like(2048, 32, 2, 18),
    },
    "ernie4_5_moe": {
        "ERNIE-4.5-21B-A3B": llama_like(2560, 20, 4, 28),
        "ERNIE-4.5-300B-A47B": llama_like(8192, 64, 8, 54),
    },
    "nemotron": {
        "Minitron-4B": llama_like(3072, 24, 8, 32, head_dim=128, partial_rotary_factor=0.5),
        "Nemotron-4-340B": llama_like(18432, 96, 8, 96, partial_rotary_factor=0.5),
    },
    "dbrx": {
        "dbrx-base": {
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "max_seq_len": 32768,
            "attn_config": {"clip_qkv": 8, "kv_n_heads": 8},
        },
        "one K/V head": {
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "attn_config": {"clip_qkv": 8},
        },
    },
    "jamba": {
        "Jamba-v0.1": llama_like(4096, 32, 8, 32, attn_layer_period=8, attn_layer_offset=4),
        "Jamba-1.5-Large": llama_like(8192, 64, 8, 72, attn_layer_period=8, attn_layer_offset=4),
    },
    "minimax": {
        "MiniMax-Text-01-hf": llama_like(
            6144,
            64,
            8,
            80,
            head_dim=128,
            layer_types=every(8, others="linear_attention", layers=80),
        ),
        "alternating": llama_like(6144, 64, 8, 80, head_dim=128),
    },
    "minimax_m2": {
        "MiniMax-M2": llama_like(3072, 48, 8, 62, head_dim=128, rotary_dim=64),
        "half its layers": llama_like(3072, 48, 8, 31, head_dim=128),
    },
    "helium": {
        "helium-1-preview-2b": llama_like(2560, 20, 20, 24, head_dim=128),
        "helium-1-2b": llama_like(2048, 16, 8, 28, head_dim=128),
    },
    "persimmon": {
        "persimmon-8b-base": llama_like(4096, 64, None, 36, partial_rotary_factor=0.5),
        "persimmon-8b-chat": llama_like(4096, 64, None, 36, max_position_embeddings=16384),
    },
    "hunyuan_v1_dense": {
        "Hunyuan-7B": llama_like(4096, 32, 8, 32, head_dim=128),
        "Hunyuan-1.8B": llama_like(2048, 16, 4, 32, head_dim=128),
    },
    "seed_oss": {
        "Seed-OSS-36B": llama_like(5120, 80, 8, 64, head_dim=128, max_position_embeddings=524288),
        "half its layers": llama_like(5120, 80, 8, 32),
    },
    "apertus": {
        "Apertus-8B": llama_like(4096, 32, 8, 32),
        "Apertus-70B": llama_like(8192, 64, 8, 80),
    },
    "arcee": {
        "AFM-4.5B": llama_like(2560, 20, 4, 36, head_dim=128, max_position_embeddings=65536),
        "head_dim omitted": llama_like(2560, 20, 4, 36),
    },
    "mamba": {
        "mamba-130m": {"hidden_size": 768},
        "mamba-2.8b": {"hidden_size": 2560, "num_hidden_layers": 64},
    },
    "mamba2": {
        "mamba2-2.7b": {"hidden_size": 2560, "num_heads": 80, "num_hidden_layers": 64},
        "Mamba-Codestral-7B": {"hidden_size": 4096, "num_hidden_layers": 64},
    },
    "falcon_mamba": {
        "falcon-mamba-7b": {"hidden_size": 4096, "num_hidden_layers": 64},
        "half its layers": {"hidden_size": 4096, "num_hidden_layers": 32},
    },
}

# What no kernel has, by family or by checkpoint: a word of what the tool must say.
LACKING = {
    "bloom": "ALiBi",
    "mpt": "ALiBi",
    ("falcon", "falcon-rw-1b"): "ALiBi",
    "gpt_oss": "sinks",
    ("gemma3_text", "embeddinggemma-300m"): "causal",
    "deepseek_v2": "latent",
    "deepseek_v3": "latent",
    "mamba": "state",
    "mamba2": "state",
    "falcon_mamba": "state",
    "gemma4_text": "head_dim is",
    "granitemoehybrid": "of this kind",
    "jamba": "of this kind",
    "minimax": "of this kind",
    "qwen3_next": "of this kind",
    "llama4": "of this kind",
    ("llama4", "without chunks"): None,
    ("glm4_moe", "default"): "no multiple",
}

# Those of which nothing is served; the others lack layers, or leave something to the caller.
REFUSED = {
    "bloom",
    "mpt",
    ("falcon", "falcon-rw-1b"),
    ("gemma3_text", "embeddinggemma-300m"),
    "mamba",
    "mamba2",
    "falcon_mamba",
    ("granitemoehybrid", "default"),
    ("glm4_moe", "default"),
}
