"""Headers of checkpoints that Qwen published, made from their published sizes: what loads and what is refused.

No weights: files are sparse. Names and shapes come from the few lines of `tensors`, which share nothing with the code.
A published number of parameters checks each row.
"""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from codea1.lab.model_writer import make_header
from codea1.models.huggingface import Checkpoint
from codea1.runtime.errors import BadInput

# Where the sizes are from, before the names of the checkpoints:
#   T: the model builders of pytorch/torchtune, torchtune/models/{qwen2,qwen2_5,qwen3}/_model_builders.py at commits
#      02f9d2c, 47a9e19 and 010412e. They name the folder that each is for, and say which are tied. L agrees.
#   L: Lightning-AI/litgpt, litgpt/config.py at commit 2685705, with a link to each config.json. It says nothing of
#      ties: those of Coder, Math, QwQ and 1M are taken to be as those of the same size in T.
#   C: a copy of the config.json: of Qwen2-0.5B in rwth-i6/i6_experiments (qwen2_configs.py), of Qwen3-4B-Thinking-2507
#      in akougkas/warpio-cli (model_cards/qwen3:4b.md).
# Numbers of parameters: keras-team/keras-hub, qwen_presets.py and qwen3_presets.py at commits 12870d2 and 1df65da, of
# Qwen2.5 and Qwen3. 0: none was found.
PUBLISHED = """
qwen2   494032768 151936  896  4864 24 14 2  64 tied C Qwen2-0.5B T Qwen2-0.5B-Instruct Qwen2.5-0.5B-Instruct
qwen2  1543714304 151936 1536  8960 28 12 2 128 tied T Qwen2-1.5B-Instruct Qwen2.5-1.5B L Qwen2.5-Math-1.5B
qwen2  3085938688 151936 2048 11008 36 16 2 128 tied T Qwen2.5-3B Qwen2.5-3B-Instruct L Qwen2.5-Coder-3B-Instruct
qwen2  7615616512 152064 3584 18944 28 28 4 128 own  T Qwen2-7B-Instruct Qwen2.5-7B L Qwen2.5-Coder-7B Qwen2.5-Math-7B
qwen2           0 152064 5120 13824 48 40 8 128 own  T Qwen2.5-14B Qwen2.5-14B-Instruct L Qwen2.5-14B-Instruct-1M
qwen2 32763876352 152064 5120 27648 64 40 8 128 own  T Qwen2.5-32B L Qwen2.5-Coder-32B-Instruct QwQ-32B QwQ-32B-Preview
qwen2 72706203648 152064 8192 29568 80 64 8 128 own  T Qwen2.5-72B Qwen2.5-72B-Instruct L Qwen2.5-Math-72B
qwen3   596049920 151936 1024  3072 28 16 8 128 tied T Qwen3-0.6B Qwen3-0.6B-Base
qwen3  1720574976 151936 2048  6144 28 16 8 128 tied T Qwen3-1.7B Qwen3-1.7B-Base
qwen3  4022468096 151936 2560  9728 36 32 8 128 tied T Qwen3-4B Qwen3-4B-Base C Qwen3-4B-Thinking-2507
qwen3  8190735360 151936 4096 12288 36 32 8 128 own  T Qwen3-8B Qwen3-8B-Base
qwen3 14768307200 151936 5120 17408 40 40 8 128 own  T Qwen3-14B L Qwen3-14B-Base
qwen3 32762123264 151936 5120 25600 64 64 8 128 own  T Qwen3-32B
"""
# Tied and stored all the same. The hub lists 1.5 GB for Qwen3-0.6B and 1.19 GB for its Base: 2 bytes times 751,632,384
# and 596,049,920. Not looked up, from memory: Qwen3-1.7B has a second file of 622 MB, the size of its head.
WITH_HEAD = ("Qwen3-0.6B", "Qwen3-1.7B")
KEYS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
KEYS += ("num_key_value_heads", "head_dim")


def described() -> dict[str, tuple[dict, int]]:
    """What a checkpoint's config.json says, and its number of parameters, by name."""
    every = {}
    for family, count, *numbers in (line.split() for line in PUBLISHED.strip().splitlines()):
        head, *names = numbers[len(KEYS) :]
        config = {"model_type": family, "tie_word_embeddings": head == "tied", "torch_dtype": "bfloat16"}
        config |= {"hidden_act": "silu", "use_sliding_window": False, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}
        config |= zip(KEYS, map(int, numbers), strict=False)
        every |= {name: (config, int(count)) for name in names if len(name) > 1}
    return every


CHECKPOINTS = described()


def tensors(config: dict) -> dict[str, tuple[int, ...]]:
    V, D, F, layers, H, K, h = (config[key] for key in KEYS)
    layer = {
        **{"self_attn.q_proj.weight": (H * h, D), "self_attn.o_proj.weight": (D, H * h)},
        **{f"self_attn.{part}_proj.weight": (K * h, D) for part in "kv"},
        **{"mlp.gate_proj.weight": (F, D), "mlp.up_proj.weight": (F, D), "mlp.down_proj.weight": (D, F)},
        **{f"{norm}_layernorm.weight": (D,) for norm in ("input", "post_attention")},
    }
    if config["model_type"] == "qwen2":
        layer |= {f"self_attn.{part}_proj.bias": ({"q": H}.get(part, K) * h,) for part in "qkv"}
    else:
        layer |= {f"self_attn.{part}_norm.weight": (h,) for part in "qk"}
    stored = {f"model.layers.{i}.{part}": shape for i in range(layers) for part, shape in layer.items()}
    stored |= {"model.embed_tokens.weight": (V, D), "model.norm.weight": (D,)}
    return stored if config["tie_word_embeddings"] else stored | {"lm_head.weight": (V, D)}


def write(folder, config, stored):
    """A model folder of zeros that take no space."""
    (folder / "config.json").write_text(json.dumps(config))
    header = make_header({name: (shape, np.dtype(ml_dtypes.bfloat16)) for name, shape in stored.items()})
    with open(folder / "model.safetensors", "wb") as file:
        file.write(header)
        file.truncate(len(header) + 2 * sum(map(math.prod, stored.values())))


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_published_checkpoint_is_loaded(name, tmp_path):
    config, count = CHECKPOINTS[name]
    stored = tensors(config)
    assert count in (0, sum(map(math.prod, stored.values())))
    head = {"lm_head.weight": stored["model.embed_tokens.weight"]} if name in WITH_HEAD else {}
    left_out = "head_dim" if config["model_type"] == "qwen2" else ""
    write(tmp_path, {key: value for key, value in config.items() if key != left_out}, stored | head)
    read = Checkpoint(tmp_path).config
    sizes = (read.vocab_size, read.hidden_size, read.intermediate_size, read.num_layers, read.num_heads)
    assert (*sizes, read.num_kv_heads, read.head_dim) == tuple(config[key] for key in KEYS)
    assert (read.tie_word_embeddings, read.param_dtype) == (config["tie_word_embeddings"], "bfloat16")


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}  # as the model cards advise


@pytest.mark.parametrize(
    ("name", "like", "changes", "prefix", "complaint"),
    [
        ("Qwen2.5-7B-Instruct-AWQ", "Qwen2.5-7B", {"quantization_config": {"quant_method": "awq"}}, "model.", "'awq'"),
        ("Qwen3-8B-FP8", "Qwen3-8B", {"quantization_config": {"quant_method": "fp8"}}, "model.", "'fp8'"),
        ("Qwen3-Next-80B", "Qwen3-4B", {"model_type": "qwen3_next"}, "model.", "model_type is 'qwen3_next'"),
        ("Qwen2.5-VL-7B-Instruct", "Qwen2.5-7B", {"model_type": "qwen2_5_vl"}, "model.", "model_type is 'qwen2_5_vl'"),
        ("Qwen2.5-7B with YaRN", "Qwen2.5-7B", {"rope_scaling": YARN}, "model.", "rotary embeddings .*yarn.* are not"),
        # Names by issue 19 of Epistates/pmetal, which quotes the index.
        ("Qwen3-Embedding-8B", "Qwen3-8B", {}, "", "tensor model.embed_tokens.weight is missing"),
    ],
)
def test_a_published_checkpoint_of_another_kind_is_refused(name, like, changes, prefix, complaint, tmp_path):
    config, _ = CHECKPOINTS[like]
    stored = {key.replace("model.", prefix, 1): shape for key, shape in tensors(config).items()}
    write(tmp_path, config | changes, stored)
    with pytest.raises(BadInput, match=complaint):
        Checkpoint(tmp_path)
