"""Weights in and out, in the folder layout that `transformers` and vLLM load: config.json and safetensors files."""

import contextlib
import dataclasses
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import DTypeLike
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from codea1.errors import BadInput
from codea1.models import config_json
from codea1.models.config_json import SpecialIds
from codea1.models.qwen2 import Params, Qwen2Config, abstract
from codea1.sharding import to_host

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}  # name in safetensors: name in JAX

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """How a checkpoint stores one parameter, or one layer of a stacked parameter."""

    name: str  # {layer} stands for the index on the parameter's leading axis
    # A linear map is stored as one matrix [outputs, inputs] and is here [inputs..., outputs...] with this many input
    # dimensions; 0 is a vector there; None is the same array in both.
    inputs: int | None

    @property
    def stacked(self) -> bool:
        return "{layer}" in self.name

    def stored_shape(self, shape: Shape) -> Shape:
        """The shape in the file of a parameter that has `shape` here, without the layers axis."""
        if self.inputs is None:
            return shape
        outputs = math.prod(shape[self.inputs :])
        return (outputs, math.prod(shape[: self.inputs])) if self.inputs else (outputs,)

    def to_stored(self, x: np.ndarray) -> np.ndarray:
        matrix = x if self.inputs is None else x.reshape(self.stored_shape(x.shape)[::-1]).T
        # Safetensors writes a view's underlying buffer: a transposed view would be stored untransposed.
        return np.ascontiguousarray(matrix)

    def from_stored(self, x: np.ndarray, shape: Shape) -> np.ndarray:
        return x if self.inputs is None else x.T.reshape(shape)


TENSORS = {
    "embedding": Tensor("model.embed_tokens.weight", None),
    "layers.attention_norm.scale": Tensor("model.layers.{layer}.input_layernorm.weight", 0),
    "layers.attention.q_kernel": Tensor("model.layers.{layer}.self_attn.q_proj.weight", 1),
    "layers.attention.q_bias": Tensor("model.layers.{layer}.self_attn.q_proj.bias", 0),
    "layers.attention.k_kernel": Tensor("model.layers.{layer}.self_attn.k_proj.weight", 1),
    "layers.attention.k_bias": Tensor("model.layers.{layer}.self_attn.k_proj.bias", 0),
    "layers.attention.v_kernel": Tensor("model.layers.{layer}.self_attn.v_proj.weight", 1),
    "layers.attention.v_bias": Tensor("model.layers.{layer}.self_attn.v_proj.bias", 0),
    "layers.attention.q_norm.scale": Tensor("model.layers.{layer}.self_attn.q_norm.weight", 0),
    "layers.attention.k_norm.scale": Tensor("model.layers.{layer}.self_attn.k_norm.weight", 0),
    "layers.attention.o_kernel": Tensor("model.layers.{layer}.self_attn.o_proj.weight", 2),
    "layers.mlp_norm.scale": Tensor("model.layers.{layer}.post_attention_layernorm.weight", 0),
    "layers.mlp.gate_kernel": Tensor("model.layers.{layer}.mlp.gate_proj.weight", 1),
    "layers.mlp.up_kernel": Tensor("model.layers.{layer}.mlp.up_proj.weight", 1),
    "layers.mlp.down_kernel": Tensor("model.layers.{layer}.mlp.down_proj.weight", 1),
    "norm.scale": Tensor("model.norm.weight", 0),
    "lm_head": Tensor("lm_head.weight", None),
}


class Checkpoint:
    """A checkpoint whose files are open and hold exactly the tensors that its config.json asks for."""

    def __init__(self, folder: Path, config: Qwen2Config, shapes: dict[str, Shape], files: dict[str, Any]) -> None:
        self.folder = folder
        self.config = config  # `param_dtype` is what the files hold, `dtype` what config.json asks for
        self._shapes = shapes
        self._files = files

    def params(self) -> Params:
        """The parameters as numpy arrays, shaped as `qwen2.abstract(config)` says."""
        whole = {path: self._read(path, (slice(None),) * len(shape)) for path, shape in self._shapes.items()}
        return unflatten_dict(whole, sep=".")

    def place(self, shardings: Any, dtype: DTypeLike) -> Params:
        """The parameters on the devices of `shardings`, shaped like them, in `dtype`.

        Reads for each device the layers it holds, a tensor at a time: no host ever holds more than its devices' shards
        and one tensor.
        """

        def one(path: str, sharding: jax.sharding.Sharding) -> jax.Array:
            return jax.make_array_from_callback(
                self._shapes[path], sharding, lambda index: self._read(path, index).astype(dtype)
            )

        placed = {path: one(path, sharding) for path, sharding in flatten_dict(shardings, sep=".").items()}
        return unflatten_dict(placed, sep=".")

    def _read(self, path: str, index: tuple[slice, ...]) -> np.ndarray:
        tensor, shape = TENSORS[path], self._shapes[path]
        if not tensor.stacked:
            return tensor.from_stored(self._files[tensor.name].get_tensor(tensor.name), shape)[index]
        names = [tensor.name.format(layer=layer) for layer in range(shape[0])[index[0]]]
        return np.stack(
            [tensor.from_stored(self._files[name].get_tensor(name), shape[1:])[index[1:]] for name in names]
        )


@contextlib.contextmanager
def opened(folder: str | os.PathLike[str]) -> Iterator[Checkpoint]:
    """A Qwen2 or Qwen3 checkpoint: config.json and one safetensors file, or several with an index.

    Raises BadInput naming the file, key or tensor that is missing, left over, malformed or of another family.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        config = config_json.read(folder / "config.json")
        files = _open(folder, stack)
        config = dataclasses.replace(config, param_dtype=_dtype(folder, files))
        shapes = _shapes(config)
        _check(folder, files, shapes)
        yield Checkpoint(folder, config, shapes, files)


def load(folder: str | os.PathLike[str]) -> tuple[Qwen2Config, Params]:
    """The configuration of a checkpoint and all its parameters on the host; see `opened` and `Checkpoint`."""
    with opened(folder) as checkpoint:
        return checkpoint.config, checkpoint.params()


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
    one writes. Raises BadInput, before anything is written, for a folder that holds something.
    """
    folder = Path(folder)
    arrays = flatten_dict(params, sep=".")
    shards = _shards(arrays, max_shard_bytes)
    writes = jax.process_index() == 0
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder}: a checkpoint cannot be written here, the folder is not empty")
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
    names = [_shard_name(number, len(shards)) for number in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards, strict=True):
        tensors = {stored: _stored(path, arrays[path], layer) for stored, (path, layer) in shard.items()}
        if writes:
            # transformers refuses a file that does not say which framework's layout it has.
            save_file(tensors, folder / name, metadata={"format": "pt"})
    if not writes:
        return
    if len(shards) > 1:
        weight_map = {stored: name for name, shard in zip(names, shards, strict=True) for stored in shard}
        total = sum(array.nbytes for array in arrays.values())
        _write_json(
            folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map}
        )
    if ids is not None:
        _write_json(folder / "generation_config.json", config_json.generation_content(ids))
    dtype = str(arrays["embedding"].dtype)
    _write_json(folder / "config.json", config_json.content(config, dtype, ids))


def _shards(arrays: dict[str, jax.Array], max_bytes: int) -> list[dict[str, tuple[str, int]]]:
    """Names of stored tensors, with the parameter and layer of each, dealt in order into files."""
    shards: list[dict[str, tuple[str, int]]] = [{}]
    size = 0
    for stored, path, layer, nbytes in sorted(_stored_tensors(arrays), key=lambda each: _natural(each[0])):
        if shards[-1] and size + nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][stored] = (path, layer)
        size += nbytes
    return shards


def _stored_tensors(arrays: dict[str, jax.Array]) -> Iterator[tuple[str, str, int, int]]:
    for path, array in arrays.items():
        tensor = TENSORS[path]
        layers = array.shape[0] if tensor.stacked else 1
        for layer in range(layers):
            yield tensor.name.format(layer=layer), path, layer, array.nbytes // layers


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts layer 2 before layer 10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.split(".")]


def _shard_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else f"model-{number:05d}-of-{count:05d}.safetensors"


def _stored(path: str, array: jax.Array, layer: int) -> np.ndarray:
    piece = _layer(array, layer) if TENSORS[path].stacked else array
    return TENSORS[path].to_stored(to_host(piece))


@jax.jit
def _layer(array: jax.Array, layer: jax.Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(array, layer, keepdims=False)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _shapes(config: Qwen2Config) -> dict[str, Shape]:
    _, params = abstract(config)
    return {path: param.shape for path, param in flatten_dict(nnx.to_pure_dict(params), sep=".").items()}


def _open(folder: Path, stack: contextlib.ExitStack) -> dict[str, Any]:
    """Every tensor name with the open file that holds it."""
    files = {}
    for path in _tensor_files(folder):
        try:
            file = stack.enter_context(safe_open(path, framework="numpy"))
        except FileNotFoundError as error:
            raise BadInput(f"{path}: there is no such file") from error
        except (SafetensorError, OSError) as error:
            raise BadInput(f"{path}: is not a whole safetensors file ({error})") from error
        files.update(dict.fromkeys(file.keys(), file))
    return files


def _tensor_files(folder: Path) -> list[Path]:
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.exists() or not index.exists():
        return [single]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [folder / name for name in sorted(names)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{index}: is not an index of tensors (no weight_map of names to files)") from error


def _dtype(folder: Path, files: dict[str, Any]) -> str:
    """The one dtype that all tensors share."""
    found = {file.get_slice(name).get_dtype(): name for name, file in files.items()}
    for dtype, name in found.items():
        if dtype not in _DTYPES:
            raise BadInput(f"{folder}: tensor {name} has dtype {dtype}, only {', '.join(_DTYPES)} are supported")
    if not found:
        raise BadInput(f"{folder}: there are no tensors")
    if len(found) > 1:
        kinds = ", ".join(f"{name} {dtype}" for dtype, name in found.items())
        raise BadInput(f"{folder}: tensors must share one dtype, there are {kinds}")
    return _DTYPES[next(iter(found))]


def _check(folder: Path, files: dict[str, Any], shapes: dict[str, Shape]) -> None:
    """Raises BadInput unless the files hold exactly the tensors of the model, each in its shape."""
    expected = {}
    for path, shape in shapes.items():
        tensor = TENSORS[path]
        layers, shape = (shape[0], shape[1:]) if tensor.stacked else (1, shape)
        expected |= {tensor.name.format(layer=layer): tensor.stored_shape(shape) for layer in range(layers)}
    for problem, names in (
        ("missing", expected.keys() - files.keys()),
        ("not part of the model", files.keys() - expected.keys()),
    ):
        if names:
            raise BadInput(f"{folder}: tensor {min(names)} is {problem} ({len(names)} such in all)")
    for name, shape in expected.items():
        found = tuple(files[name].get_slice(name).get_shape())
        if found != shape:
            raise BadInput(f"{folder}: tensor {name} has shape {found}, config.json makes it {shape}")
