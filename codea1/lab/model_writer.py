"""Writes models and adapters into folders, in the layout that `transformers`, vLLM and PEFT load.

One tensor is written after the other: no host has a whole model in memory.
"""

import itertools
import json
import math
import os
import struct
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from codea1.models import config_json, peft
from codea1.models.config import Qwen2Config, SpecialIds
from codea1.models.files import Content, ModelFolder
from codea1.models.huggingface import TENSORS
from codea1.models.qwen2 import Params
from codea1.models.safetensors_header import DTYPES, Shape
from codea1.runtime.errors import BadInput
from codea1.sharding import to_host

Index = tuple[int, ...]  # on the leading axes of a parameter

_NAMES = {jax_name: name for name, jax_name in DTYPES.items()}  # in a file
_WRITTEN = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "bias": "none",
    "fan_in_fan_out": False,
    "inference_mode": True,
    "init_lora_weights": True,
    "lora_dropout": 0.0,
    "modules_to_save": None,
    "use_dora": False,
    "use_rslora": False,
}


def save(
    folder: str | os.PathLike[str],
    config: Qwen2Config,
    params: Params,
    *,
    ids: SpecialIds | None = None,
    max_shard_bytes: int = 5 << 30,
) -> None:
    """Writes a checkpoint, bit for bit as the parameters are, in their own dtype.

    config.json, and model.safetensors or, where that would be larger than `max_shard_bytes`, several numbered files
    with an index; with `ids` generation_config.json, which says where an answer ends. config.json is written last.
    Gathers parameters that are cut across processes, a tensor at a time: every process must call this, and the first
    one writes. Raises BadInput, before anything is written, for a folder that holds a model or a part of one.
    """
    folder = ModelFolder(folder)
    arrays = flatten_dict(params, sep=".")
    shards = _dealt(arrays, max_shard_bytes)
    _require_free(folder)
    names = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    names = ["model.safetensors"] if len(shards) == 1 else names
    for name, shard in zip(names, shards, strict=True):
        _write_tensors(folder, name, shard, arrays)
    if jax.process_index() != 0:
        return
    if len(shards) > 1:
        weight_map = {stored: name for name, shard in zip(names, shards, strict=True) for stored in shard}
        total = sum(array.nbytes for array in arrays.values())
        folder.write_json("model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map})
    if ids is not None:
        folder.write_json("generation_config.json", _generation_content(ids))
    dtype = str(arrays["embedding"].dtype)
    folder.write_json("config.json", config_content(config, dtype, ids))


def save_adapters(
    folder: str | os.PathLike[str], adapters: Params, *, alpha: float, base: peft.Base, name: str = ""
) -> None:
    """Writes adapters in float32, as PEFT loads them; adapter_config.json last. `name` is the base's for PEFT alone.

    Gathers adapters that are cut across processes, a tensor at a time: every process must call this, and the first one
    writes. Raises BadInput, before anything is written, for a folder that holds a model, adapters or a part of them.
    """
    folder = ModelFolder(folder)
    arrays = {path: array.astype(jnp.float32) for path, array in flatten_dict(adapters, sep=".").items()}
    _require_free(folder)
    (shard,) = _dealt(arrays, math.inf)
    _write_tensors(folder, peft.WEIGHTS, shard, arrays)
    if jax.process_index() != 0:
        return
    folder.write_json(peft.BASE, base._asdict())
    config = {
        **_WRITTEN,
        "base_model_name_or_path": name or base.name,
        "lora_alpha": alpha,
        "r": next(array.shape[-1] for path, array in arrays.items() if path.endswith("_a")),
        "target_modules": sorted({peft.MODULES[peft.linear_of(path)] for path in arrays}),
    }
    folder.write_json(peft.CONFIG, config)


def merged(params: Params, adapters: Params, scale: float) -> Params:
    """Returns the parameters of a model that answers as `params` with the adapters do, `scale` being alpha / rank.

    Sums are rounded once, to the dtype of the kernel. Compiled, it has one layer of a kernel in float32 at a time.
    """
    leaves, halves = flatten_dict(params, sep="."), flatten_dict(adapters, sep=".")

    def joined(layer: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        kernel, a, b = layer
        # On TPUs the default is the product of numbers rounded to bfloat16.
        product = jnp.tensordot(a.astype(jnp.float32), b.astype(jnp.float32), 1, precision=jax.lax.Precision.HIGHEST)
        return (kernel.astype(jnp.float32) + scale * product).astype(kernel.dtype)

    # In one order on all hosts, as what they compute together must be.
    for layer in dict.fromkeys(peft.linear_of(path) for path in halves):
        kernel = leaves[f"{layer}_kernel"]
        leaves[f"{layer}_kernel"] = jax.lax.map(joined, (kernel, halves[f"{layer}_lora_a"], halves[f"{layer}_lora_b"]))
    return unflatten_dict(leaves, sep=".")


def _require_free(folder: ModelFolder) -> None:
    """Raises BadInput, on the process that writes, for a folder that holds a model, adapters or a part of them."""
    for name in folder.names() if jax.process_index() == 0 else ():
        whole = name in ("config.json", "adapter_config.json")
        if whole or name.endswith((".safetensors", ".safetensors.index.json")):
            raise BadInput(f"{folder}: a checkpoint cannot be written here, the folder holds {name}.")


def _write_tensors(
    folder: ModelFolder, name: str, shard: Mapping[str, tuple[str, Index]], arrays: Mapping[str, jax.Array]
) -> None:
    """Writes a file of `_dealt` tensors: the first process does, and every process must call this."""
    content = _content(shard, arrays)
    if jax.process_index() == 0:
        folder.write(name, content)
    else:
        deque(content, maxlen=0)


def _content(shard: Mapping[str, tuple[str, Index]], arrays: Mapping[str, jax.Array]) -> Iterator[Content]:
    """Yields the bytes of a file with these tensors."""
    described = {}
    for stored, (path, _) in shard.items():
        tensor, array = TENSORS[path], arrays[path]
        described[stored] = tensor.whole_shape(array.shape), array.dtype
    yield make_header(described)
    held: dict[str, tuple[Index, np.ndarray]] = {}  # all experts of a layer: they lie cut over all devices
    for path, index in shard.values():
        layer, expert = index[:1], index[1:]
        if not expert:
            part = to_host(_layer(arrays[path], layer))
        else:
            if path not in held or held[path][0] != layer:
                held[path] = layer, to_host(_layer(arrays[path], layer))
            part = held[path][1][expert]
        tensor = TENSORS[path]
        matrix = part if tensor.inputs is None else part.reshape(tensor.stored_shape(part.shape)[::-1]).T
        yield np.ascontiguousarray(matrix).reshape(-1).view(np.uint8).data


def _dealt(arrays: Mapping[str, jax.Array], max_bytes: float) -> list[dict[str, tuple[str, Index]]]:
    """Deals the names of stored tensors, with the parameter and leading indices of each, in order into files."""
    tensors = []
    for path, array in arrays.items():
        leading = array.shape[: TENSORS[path].leads]
        nbytes = array.nbytes // math.prod(leading)
        indices = itertools.product(*map(range, leading))
        tensors += [(TENSORS[path].name_of(index), path, index, nbytes) for index in indices]
    shards: list[dict[str, tuple[str, Index]]] = [{}]
    size = 0
    for stored, path, index, nbytes in sorted(tensors, key=lambda tensor: _natural(tensor[0])):
        if shards[-1] and size + nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][stored] = (path, index)
        size += nbytes
    return shards


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts layer 2 before layer 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


@jax.jit
def _layer(array: jax.Array, layer: Index) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, *layer, keepdims=False) if layer else array


def make_header(tensors: Mapping[str, tuple[Shape, np.dtype]]) -> bytes:
    """Returns the header of a file that holds `tensors`, name to shape and dtype, in this order."""
    # transformers refuses a file that does not say which framework's layout it has.
    header: dict = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, (shape, dtype) in tensors.items():
        stop = start + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": _NAMES[dtype.name], "shape": list(shape), "data_offsets": [start, stop]}
        start = stop
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)  # so that tensors are aligned
    return struct.pack("<Q", len(encoded)) + encoded


def _generation_content(ids: SpecialIds) -> dict[str, Any]:
    """Returns what generation_config.json holds: sampling at a temperature of 1, until one of the policy's stop ids."""
    return {
        "do_sample": True,
        "eos_token_id": list(ids.stop_ids),
        "pad_token_id": ids.pad_id,
        "temperature": 1.0,
        "top_k": 0,  # off; without it transformers takes 50
        "top_p": 1.0,
        "transformers_version": "5.23.0",
    }


def config_content(config: Qwen2Config, dtype: str, ids: SpecialIds | None = None) -> dict[str, Any]:
    """Returns config.json for weights stored in `dtype`: what transformers 5.23 writes, and two keys of version 4.

    A vLLM that has version 4 finds no rope_theta in rope_parameters, and takes 10,000 without a warning.

    Raises ValueError for a mixture of the families, which no other library would load.
    """
    layers = {"qkv_bias": config.qkv_bias, "qk_norm": config.qk_norm}
    family = next((name for name, has in config_json.FAMILIES.items() if has == layers), None)
    if family is None or (config.num_experts and family != "qwen3"):
        raise ValueError(f"no published family has {layers}")
    experts: dict[str, Any] = {}
    if config.num_experts:
        family = "qwen3_moe"
        experts = {key: getattr(config, field) for field, key in config_json.EXPERT_COUNTS.items()}
        experts |= {"norm_topk_prob": config.norm_experts, "num_local_experts": config.num_experts}
        experts |= {"decoder_sparse_step": 1, "mlp_only_layers": [], "output_router_logits": False}
    implied = family == "qwen2" and config.head_dim * config.num_heads == config.hidden_size
    return {
        **{key: value for key, value in config_json.ASSUMED.items() if key != "attention_bias" or family != "qwen2"},
        **{key: getattr(config, field) for field, key in config_json.COUNTS.items()},
        **experts,
        **({} if implied else {"head_dim": config.head_dim}),
        "architectures": [f"{family.title().replace('_', '')}ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "dtype": dtype,
        "eos_token_id": ids.stop_ids[0] if ids else None,
        "initializer_range": 0.02,
        "layer_types": ["full_attention"] * config.num_layers,
        "max_position_embeddings": config.max_positions,
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
