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
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from codea1.errors import BadInput
from codea1.models import config_json
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


def load(folder: str | os.PathLike[str]) -> tuple[Qwen2Config, Params]:
    """Reads a Qwen2 checkpoint: config.json and one safetensors file, or several with an index.

    Returns the configuration (`param_dtype` is what the files hold, `dtype` what config.json asks for) and numpy arrays
    on the host, shaped as `qwen2.abstract(config)` says; `jax.device_put(params, shardings)` places them.
    Raises BadInput naming the file, key or tensor that is missing, left over, malformed or not Qwen2's.
    """
    folder = Path(folder)
    with contextlib.ExitStack() as stack:
        config = config_json.read(folder / "config.json")
        files = _open(folder, stack)
        config = dataclasses.replace(config, param_dtype=_dtype(folder, files))
        shapes = _shapes(config)
        _check(folder, files, shapes)
        params = {path: _assemble(TENSORS[path], shape, files) for path, shape in shapes.items()}
    return config, unflatten_dict(params, sep=".")


def save(folder: str | os.PathLike[str], config: Qwen2Config, params: Params) -> None:
    """Writes config.json and model.safetensors, bit for bit as the parameters are, in their own dtype.

    Each file appears whole or not at all, config.json last. Gathers parameters that are cut across processes: every
    process must call this, and the first one writes.
    """
    arrays = flatten_dict(to_host(params), sep=".")
    if jax.process_index() != 0:
        return
    tensors = {}
    for path, array in arrays.items():
        tensor = TENSORS[path]
        for layer, piece in enumerate(array) if tensor.stacked else [(0, array)]:
            tensors[tensor.name.format(layer=layer)] = tensor.to_stored(piece)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _replacing(folder / "model.safetensors") as temporary:
        # transformers refuses a file that does not say which framework's layout it has.
        save_file(tensors, temporary, metadata={"format": "pt"})
    with _replacing(folder / "config.json") as temporary:
        content = config_json.content(config, dtype=str(arrays["embedding"].dtype))
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


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


def _assemble(tensor: Tensor, shape: Shape, files: dict[str, Any]) -> np.ndarray:
    def read(layer: int, shape: Shape) -> np.ndarray:
        name = tensor.name.format(layer=layer)
        return tensor.from_stored(files[name].get_tensor(name), shape)

    if not tensor.stacked:
        return read(0, shape)
    return np.stack([read(layer, shape[1:]) for layer in range(shape[0])])


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well and is removed otherwise."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
