"""config.json of a Qwen2 or Qwen3 checkpoint, as `transformers` writes it, to and from Qwen2Config."""

from typing import Any

from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import ModelFolder
from codea1.runtime.errors import BadInput

_COUNTS = {  # field of Qwen2Config: key of config.json
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
}
_FAMILIES: dict[str, dict[str, Any]] = {  # model_type: what its layers have
    "qwen2": {"qkv_bias": True, "qk_norm": False},
    "qwen3": {"qkv_bias": False, "qk_norm": True},
}
# What this implementation computes; a checkpoint that says otherwise would give wrong numbers, not an error.
_ASSUMED = {"hidden_act": "silu", "use_sliding_window": False, "attention_bias": False}
_DTYPES = ("float32", "bfloat16", "float16")


def read(folder: ModelFolder) -> Qwen2Config:
    """Returns the configuration in a folder; both dtypes are the one that the file names, float32 if it names none.

    Understands both generations of the file: `rope_parameters` and `dtype`, and the older `rope_theta`, `rope_scaling`
    and `torch_dtype`. Raises BadInput naming the file and the key that is missing or not supported.
    """
    path = folder.file("config.json")
    raw = folder.read_json("config.json")
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: is not a JSON object.")
    family = _FAMILIES.get(raw.get("model_type", ""))
    if family is None:
        supported = " and ".join(map(repr, _FAMILIES))
        raise BadInput(f"{path}: model_type is {raw.get('model_type')!r}, only {supported} are supported.")
    for key, supported in _ASSUMED.items():
        if raw.get(key, supported) != supported:
            raise BadInput(f"{path}: {key} is {raw[key]!r}, only {supported!r} is supported.")
    sizes = {field: number(path, raw, key, int) for field, key in _COUNTS.items()}
    if raw.get("head_dim") is None:  # older files leave it out
        raw["head_dim"] = sizes["hidden_size"] // max(sizes["num_heads"], 1)
    dtype = raw.get("dtype") or raw.get("torch_dtype") or "float32"
    if dtype not in _DTYPES:
        raise BadInput(f"{path}: dtype is {dtype!r}, it must be one of {', '.join(_DTYPES)}.")
    return Qwen2Config(
        **sizes,
        **family,
        head_dim=number(path, raw, "head_dim", int),
        rope_theta=_rope_theta(path, raw),
        rms_norm_eps=number(path, raw, "rms_norm_eps", float),
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        dtype=dtype,
        param_dtype=dtype,
    )


def generation_content(ids: SpecialIds) -> dict[str, Any]:
    """Returns what generation_config.json holds: sampling as the policy was trained, until one of its stop ids."""
    return {
        "do_sample": True,
        "eos_token_id": list(ids.stop_ids),
        "pad_token_id": ids.pad_id,
        "temperature": 1.0,
        "transformers_version": "5.23.0",
    }


def content(config: Qwen2Config, dtype: str, ids: SpecialIds | None = None) -> dict[str, Any]:
    """Returns config.json for weights stored in `dtype`: what transformers 5.23 writes, and two keys of version 4.

    A vLLM that has version 4 finds no rope_theta in rope_parameters, and takes 10,000 without a warning.

    Raises ValueError for a mixture of the families, which no other library would load.
    """
    layers = {"qkv_bias": config.qkv_bias, "qk_norm": config.qk_norm}
    family = next((name for name, has in _FAMILIES.items() if has == layers), None)
    if family is None:
        raise ValueError(f"no published family has {layers}")
    implied = family == "qwen2" and config.head_dim * config.num_heads == config.hidden_size
    return {
        **{key: value for key, value in _ASSUMED.items() if key != "attention_bias" or family == "qwen3"},
        **{key: getattr(config, field) for field, key in _COUNTS.items()},
        **({} if implied else {"head_dim": config.head_dim}),
        "architectures": [f"{family.capitalize()}ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": dtype,
        "eos_token_id": ids.stop_ids[0] if ids else None,
        "initializer_range": 0.02,
        "layer_types": ["full_attention"] * config.num_layers,
        "max_position_embeddings": 32768,
        "max_window_layers": config.num_layers,
        "model_type": family,
        "pad_token_id": ids.pad_id if ids else None,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"},
        "rope_theta": config.rope_theta,
        "sliding_window": None,
        "tie_word_embeddings": config.tie_word_embeddings,
        "torch_dtype": dtype,
        "transformers_version": "5.23.0",
        "use_cache": True,
    }


def number(path: str, holder: dict[str, Any], key: str, kind: type) -> Any:
    """Returns what `holder`, read from a file at `path`, has at `key`. Raises BadInput: nothing, or another kind."""
    if key not in holder:
        raise BadInput(f"{path}: key {key} is missing.")
    value = holder[key]
    if isinstance(value, bool) or not isinstance(value, (int, kind)):
        raise BadInput(f"{path}: {key} must be {'an integer' if kind is int else 'a number'}, got {value!r}.")
    return kind(value)


def _rope_theta(path: str, raw: dict[str, Any]) -> float:
    rope = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise BadInput(f"{path}: rotary embeddings of type {rope_type!r} are not supported, only 'default'.")
    return number(path, rope if "rope_theta" in rope else raw, "rope_theta", float)
