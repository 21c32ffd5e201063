"""Weights from the folder layout that `transformers` and vLLM load: config.json and safetensors files.

Folders are local or behind any URL that fsspec knows. A host reads the rows of stored tensors that its devices hold:
it never has a whole model in memory. `codea1.models.peft` is built of the same parts, for adapters, and
`codea1.lab.model_writer` writes such folders.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import DTypeLike

from codea1.models import config_json
from codea1.models.config import Qwen2Config
from codea1.models.files import ModelFolder
from codea1.models.qwen2 import Params, abstract
from codea1.models.safetensors_header import DTYPES, Entry, Shape, read_header
from codea1.runtime.errors import BadInput
from codea1.storage.checksums import checksum_of

_READ_AT_ONCE = 8  # tensors: a bucket answers many requests in the time of one
_BUFFER = "rotary_emb.inv_freq"  # ends the name of what old checkpoints also store, and config.json says

Bounds = tuple[tuple[int, int], ...]  # of a part of an array: start and stop along each dimension


@dataclasses.dataclass(frozen=True)
class Tensor:
    """How a checkpoint stores one parameter, or one layer of a stacked parameter, or one expert of such a layer."""

    name: str  # {layer} and {expert} stand for indices on the parameter's leading axes
    # A linear map is stored as one matrix [outputs, inputs] and is here [inputs..., outputs...] with this many input
    # dimensions; 0 is a vector there; None is the same array in both.
    inputs: int | None
    # Of a tensor with all experts of a layer: which of how many kernels, that lie one behind the other, this is.
    kernel: tuple[int, int] | None = None

    @property
    def leads(self) -> int:
        """How many leading axes of the parameter the file has apart: layers, or layers and experts."""
        return ("{layer}" in self.name) + ("{expert}" in self.name or self.kernel is not None)

    @property
    def cut(self) -> int:
        """The dimension, without the leading axes, whose slices are whole rows of the file, one after the other."""
        return self.inputs or 0

    def name_of(self, index: Sequence[int]) -> str:
        """Returns the name in the file of what has an index on the leading axes."""
        return self.name.format(**dict(zip(("layer", "expert"), index, strict=False)))

    def whole_shape(self, shape: Shape) -> Shape:
        """Returns the shape of the file's tensor, of a parameter that has `shape` here."""
        inner = self.stored_shape(shape[self.leads :])
        return (shape[1], self.kernel[1] * inner[0], *inner[1:]) if self.kernel else inner

    def stored_shape(self, shape: Shape) -> Shape:
        """Returns the shape in the file of a parameter that has `shape` here, without the leading axes."""
        if self.inputs is None:
            return shape
        outputs = math.prod(shape[self.inputs :])
        return (outputs, math.prod(shape[: self.inputs])) if self.inputs else (outputs,)


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
    "layers.mlp.router": Tensor("model.layers.{layer}.mlp.gate.weight", 1),
    "layers.mlp.gate_experts": Tensor("model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight", 1),
    "layers.mlp.up_experts": Tensor("model.layers.{layer}.mlp.experts.{expert}.up_proj.weight", 1),
    "layers.mlp.down_experts": Tensor("model.layers.{layer}.mlp.experts.{expert}.down_proj.weight", 1),
    "norm.scale": Tensor("model.norm.weight", 0),
    "lm_head": Tensor("lm_head.weight", None),
}
# The other layout of experts: those of a layer in one tensor.
_STACKED_EXPERTS = {
    "layers.mlp.gate_experts": Tensor("model.layers.{layer}.mlp.experts.gate_up_proj", 1, (0, 2)),
    "layers.mlp.up_experts": Tensor("model.layers.{layer}.mlp.experts.gate_up_proj", 1, (1, 2)),
    "layers.mlp.down_experts": Tensor("model.layers.{layer}.mlp.experts.down_proj", 1, (0, 1)),
}
_EMBEDDING, _HEAD = TENSORS["embedding"], TENSORS["lm_head"]
# Beside the kernel of every linear layer an adapter [inputs..., rank], [rank, outputs...], under the names of PEFT.
TENSORS |= {
    path.replace("_kernel", f"_lora_{half.lower()}"): Tensor(
        f"base_model.model.{kernel.name.removesuffix('weight')}lora_{half}.weight", kernel.inputs if half == "A" else 1
    )
    for path, kernel in TENSORS.items()
    if path.endswith("_kernel")
    for half in "AB"
}


class Checkpoint:
    """A Qwen2 or Qwen3 checkpoint that holds exactly the tensors that its config.json asks for.

    It may also hold a tied head, equal to the embedding. `config.param_dtype` is what the files hold, or what holds all
    of their dtypes; `config.dtype` what config.json asks for.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Reads config.json and the headers of the one safetensors file there is, or of the several of an index.

        Raises BadInput naming the file, key or tensor that is missing, left over, malformed or of another family.
        """
        self._folder = ModelFolder(folder)
        config = config_json.read(self._folder)
        self._stored = StoredTensors(self._folder, _tensor_files(self._folder), parameter_shapes(config))
        self.config = dataclasses.replace(config, param_dtype=self._stored.dtype)

    def place(self, shardings: Any, dtype: DTypeLike) -> Params:
        """Returns the parameters on the devices of `shardings`, shaped like them, in `dtype`.

        No host ever holds more than the parts of one parameter that its devices hold, and a few stored tensors.
        """
        return unflatten_dict(self._stored.place(flatten_dict(shardings, sep="."), dtype), sep=".")

    def checksum(self) -> str:
        """Returns a text that tells these weights from others; cut into other files, the same weights have another."""
        checksums = [self._folder.checksum(file) for file in _tensor_files(self._folder)]
        return checksum_of(repr([tuple(item) for item in checksums]).encode()).crc32c


class StoredTensors:
    """Safetensors files that hold exactly the parameters of certain paths and shapes; `dtype` holds all of them."""

    def __init__(self, folder: ModelFolder, files: Sequence[str], shapes: Mapping[str, Shape]) -> None:
        """Reads the files' headers. Raises BadInput naming the file or tensor that is missing, left over or wrong."""
        self._folder, self._shapes = folder, shapes
        self._entries = _entries(folder, files)
        self._where = folder.file(files[0]) if len(files) == 1 else folder.url
        self.dtype = _dtype(self._where, self._entries)
        # The head of a tied model: many files store it next to the embedding, some instead.
        is_tied = "embedding" in shapes and "lm_head" not in shapes
        self._tied_head = self._entries.pop(_HEAD.name, None) if is_tied else None
        if self._tied_head and _EMBEDDING.name not in self._entries:
            self._entries[_EMBEDDING.name], self._tied_head = self._tied_head, None
        is_stacked = _STACKED_EXPERTS["layers.mlp.down_experts"].name_of([0]) in self._entries
        self._tensors = {**TENSORS, **(_STACKED_EXPERTS if is_stacked else {})}
        _check(self._where, self._entries, {path: (self._tensors[path], shape) for path, shape in shapes.items()})
        if head := self._tied_head:
            table = self._entries[_EMBEDDING.name]
            if (head.dtype, head.shape) != (table.dtype, table.shape):
                raise self._other_head()

    def place(self, shardings: Mapping[str, jax.sharding.Sharding], dtype: DTypeLike) -> dict[str, jax.Array]:
        """Returns the parameters by path, each as its sharding says, in `dtype`."""

        def placed(path: str, sharding: jax.sharding.Sharding) -> jax.Array:
            shape = self._shapes[path]
            indices = sharding.addressable_devices_indices_map(shape).values()
            needed = list({_bounds(index, shape): None for index in indices})
            parts = dict(zip(needed, self._read(path, needed, jnp.dtype(dtype)), strict=True))
            return jax.make_array_from_callback(shape, sharding, lambda index: parts[_bounds(index, shape)])

        return {path: placed(path, sharding) for path, sharding in shardings.items()}

    def _read(self, path: str, needed: Sequence[Bounds], dtype: np.dtype) -> list[np.ndarray]:
        """Returns the parts of a parameter at `needed`; no byte is read twice."""
        tensor, shape = self._tensors[path], self._shapes[path]
        leads = tensor.leads
        parts = [np.empty([stop - start for start, stop in bounds], dtype) for bounds in needed]
        ranges = [[range(*bound) for bound in bounds[:leads]] for bounds in needed]
        indices = sorted({index for axes in ranges for index in itertools.product(*axes)})
        cuts = [bounds[leads + tensor.cut] for bounds in needed]
        first, last = min(start for start, _ in cuts), max(stop for _, stop in cuts)
        origin = [first if axis == tensor.cut else 0 for axis in range(len(shape) - leads)]
        for index, rows in zip(indices, self._rows(tensor, shape, indices, first, last), strict=True):
            for part, bounds, within in zip(parts, needed, ranges, strict=True):
                if all(number in axis for number, axis in zip(index, within, strict=True)):
                    inner = zip(bounds[leads:], origin, strict=True)
                    cut = tuple(slice(start - begin, stop - begin) for (start, stop), begin in inner)
                    part[tuple(number - axis.start for number, axis in zip(index, within, strict=True))] = rows[cut]
        return parts

    def _rows(
        self, tensor: Tensor, shape: Shape, indices: Sequence[tuple[int, ...]], first: int, last: int
    ) -> Iterator[np.ndarray]:
        """Yields what the indices on the leading axes have, from `first` to `last` along the dimension that is cut."""
        inner = shape[tensor.leads :]
        part = (*inner[: tensor.cut], last - first, *inner[tensor.cut + 1 :])
        stored = tensor.stored_shape(part)
        size = math.prod(stored) // (last - first)

        def read(ranges: Sequence[tuple[Entry, int]]) -> list[bytes]:
            return self._folder.read_ranges(
                [entry.part(begin + first * size, begin + last * size) for entry, begin in ranges]
            )

        for group in range(0, len(indices), _READ_AT_ONCE):
            ranges = []
            for index in indices[group:][:_READ_AT_ONCE]:
                number, count = tensor.kernel or (0, 1)
                begin = (index[1] * count + number) * math.prod(inner) if tensor.kernel else 0
                ranges.append((self._entries[tensor.name_of(index)], begin))
            for (entry, _), content in zip(ranges, read(ranges), strict=True):
                if tensor is _EMBEDDING and self._tied_head and read([(self._tied_head, 0)]) != [content]:
                    raise self._other_head()
                rows = np.frombuffer(content, entry.jax_dtype).reshape(stored)
                yield rows if tensor.inputs is None else rows.T.reshape(part)

    def _other_head(self) -> BadInput:
        return BadInput(
            f"{self._where}: tensor {_HEAD.name} is not {_EMBEDDING.name}, which config.json says that it is: if the "
            "model has another head, tie_word_embeddings must be false."
        )


def parameter_shapes(config: Qwen2Config) -> dict[str, Shape]:
    """Returns the shapes of a model's parameters by path."""
    _, params = abstract(config)
    return {path: param.shape for path, param in flatten_dict(nnx.to_pure_dict(params), sep=".").items()}


def _bounds(index: tuple[slice, ...] | None, shape: Shape) -> Bounds:
    assert index is not None
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _entries(folder: ModelFolder, files: Sequence[str]) -> dict[str, Entry]:
    """Returns every tensor by name, without buffers."""
    entries: dict[str, Entry] = {}
    for file in files:
        for name, entry in read_header(folder, file).items():
            if name.endswith(_BUFFER):
                continue
            if name in entries:
                raise BadInput(f"{folder}: tensor {name} is both in {entries[name].file} and in {file}.")
            entries[name] = entry
    return entries


def _tensor_files(folder: ModelFolder) -> list[str]:
    single, index = "model.safetensors", "model.safetensors.index.json"
    names = folder.names()
    if single in names or index not in names:
        return [single]
    content = folder.read_json(index).get("weight_map")
    files = {*map(str, content.values())} if isinstance(content, dict) else set()
    if not files:
        raise BadInput(f"{folder.file(index)}: is not an index of tensors (no weight_map of names to files).")
    if outside := sorted(file for file in files if "/" in file or file in (".", "..")):
        raise BadInput(f"{folder.file(index)}: names the file {outside[0]!r}, which is not one of this folder.")
    return sorted(files)


def _dtype(where: str, entries: dict[str, Entry]) -> str:
    """Returns a dtype that holds the values of all tensors. Raises BadInput: there are none, or of another kind."""
    for name, entry in entries.items():
        if entry.dtype not in DTYPES:
            raise BadInput(f"{where}: tensor {name} has dtype {entry.dtype}, only {', '.join(DTYPES)} are supported.")
    if not entries:
        raise BadInput(f"{where}: there are no tensors.")
    return jnp.result_type(*{entry.jax_dtype for entry in entries.values()}).name


def _check(where: str, entries: dict[str, Entry], parameters: Mapping[str, tuple[Tensor, Shape]]) -> None:
    """Raises BadInput unless the files hold exactly the tensors of the model, each in its shape."""
    expected: dict[str, Shape] = {}
    for tensor, shape in parameters.values():
        for index in itertools.product(*map(range, shape[: tensor.leads])):
            expected[tensor.name_of(index)] = tensor.whole_shape(shape)
    for problem, names in (
        ("missing", expected.keys() - entries.keys()),
        ("not part of the model", entries.keys() - expected.keys()),
    ):
        if names:
            raise BadInput(f"{where}: tensor {min(names)} is {problem} ({len(names)} such in all).")
    for name, shape in expected.items():
        if entries[name].shape != shape:
            raise BadInput(f"{where}: tensor {name} has shape {entries[name].shape}, it must have {shape}.")
