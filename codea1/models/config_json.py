"""config.json of a Qwen2, Qwen3 or Qwen3-MoE checkpoint, as `transformers` writes it, to and from Qwen2Config."""

from typing import Any

from codea1.models.config import Qwen2Config
from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput

COUNTS = {  # field of Qwen2Config: key of config.json
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
FAMILIES: dict[str, dict[str, Any]] = {  # model_type: what its layers have
    "qwen2": {"qkv_bias": True, "qk_norm": False},
    "qwen3": {"qkv_bias": False, "qk_norm": True},
    "qwen3_moe": {"qkv_bias": False, "qk_norm": True},
}
# Of a mixture of experts, whose intermediate_size is of layers without one, which are not supported.
EXPERT_COUNTS = {
    "intermediate_size": "moe_intermediate_size",
    "num_experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
}
# What this implementation computes; a checkpoint that says otherwise would give wrong numbers, not an error.
ASSUMED = {"hidden_act": "silu", "use_sliding_window": False, "attention_bias": False, "quantization_config": None}
_EVERY_LAYER = {"decoder_sparse_step": 1, "mlp_only_layers": []}  # has experts
_ASSUMED_IF_ABSENT = {"is_causal": True}  # not written; transformers from 5.2 lets models that embed say false
# What transformers takes for keys that a file leaves out.
_DEFAULTS = {"rope_theta": 10000.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768}
_DTYPES = ("float32", "bfloat16", "float16")


def read(folder: ModelFolder) -> Qwen2Config:
    """Returns the configuration in a folder; both dtypes are the one that the file names, float32 if it names none.

    Understands both generations of the file: `rope_parameters` and `dtype`, and the older `rope_theta`, `rope_scaling`
    and `torch_dtype`. Raises BadInput naming the file and the key that is missing or not supported.
    """
    path = folder.file("config.json")
    raw = _DEFAULTS | folder.read_json("config.json")
    family = FAMILIES.get(str(raw.get("model_type")))
    if family is None:
        supported = " and ".join(map(repr, FAMILIES))
        raise BadInput(f"{path}: model_type is {raw.get('model_type')!r}, only {supported} are supported.")
    has_experts = raw["model_type"] == "qwen3_moe"
    for key, supported in (ASSUMED | _ASSUMED_IF_ABSENT | (_EVERY_LAYER if has_experts else {})).items():
        if raw.get(key, supported) != supported:
            raise BadInput(f"{path}: {key} is {raw[key]!r}, only {supported!r} is supported.")
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        raise BadInput(f"{path}: layer_types is {raw['layer_types']!r}, only 'full_attention' is supported.")
    if raw.get("num_key_value_heads", 0) is None:
        raw["num_key_value_heads"] = raw.get("num_attention_heads")
    if "num_experts" not in raw and "num_local_experts" in raw:  # as transformers 5 has it
        raw["num_experts"] = raw["num_local_experts"]
    counts = COUNTS | (EXPERT_COUNTS if has_experts else {})
    sizes = {field: number(path, raw, key, int) for field, key in counts.items()}
    if "head_dim" not in raw and raw["model_type"] == "qwen3":
        raw["head_dim"] = 128
    if raw.get("head_dim") is None:  # Qwen2's files leave it out
        raw["head_dim"] = sizes["hidden_size"] // max(sizes["num_heads"], 1)
    dtype = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in _DTYPES:
        raise BadInput(f"{path}: dtype is {dtype!r}, it must be one of {', '.join(_DTYPES)}.")
    return Qwen2Config(
        **sizes,
        **family,
        norm_experts=bool(raw.get("norm_topk_prob", not has_experts)),
        head_dim=number(path, raw, "head_dim", int),
        rope_theta=_rope_theta(path, raw),
        rms_norm_eps=number(path, raw, "rms_norm_eps", float),
        max_positions=number(path, raw, "max_position_embeddings", int),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        dtype=dtype,
        param_dtype=dtype,
    )


def number(path: str, holder: dict[str, Any], key: str, kind: type) -> Any:
    """Returns what `holder`, read from a file at `path`, has at `key`. Raises BadInput: nothing, or another kind."""
    if key not in holder:
        raise BadInput(f"{path}: key {key} is missing.")
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise BadInput(f"{path}: {key} must be {'an integer' if kind is int else 'a number'}, got {value!r}.")
    return kind(value)


def _rope_theta(path: str, raw: dict[str, Any]) -> float:
    """Returns the base of the wavelengths. Readers take it from different keys: these may not contradict."""
    thetas = {}
    for key in ("rope_scaling", "rope_parameters"):
        if rope := raw.get(key):
            is_flat = isinstance(rope, dict) and not any(isinstance(value, dict) for value in rope.values())
            if not is_flat or rope.get("rope_type", rope.get("type", "default")) != "default":
                raise BadInput(f"{path}: rotary embeddings {rope} are not supported, only those of type 'default'.")
            thetas[key] = number(path, {"rope_theta": raw["rope_theta"]} | rope, "rope_theta", float)
    if len({*thetas.values()}) > 1:
        values = " and ".join(f"{theta:g} by {key}" for key, theta in thetas.items())
        raise BadInput(f"{path}: rope_theta is {values}: keep the right one of these keys.")
    return thetas.popitem()[1] if thetas else number(path, raw, "rope_theta", float)
