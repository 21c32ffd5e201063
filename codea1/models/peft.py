"""Adapters in and out, in the folder layout of PEFT: adapter_config.json and adapter_model.safetensors.

`save` adds a third file, base.json, with the name and the checksum of the base. A key of ours in PEFT's file would make
PEFT warn that a newer version had written it; older versions would fail.
"""

import dataclasses
import math
import os
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.typing import DTypeLike

from codea1.models import config_json
from codea1.models.config import Qwen2Config
from codea1.models.files import ModelFolder
from codea1.models.huggingface import TENSORS, StoredTensors, parameter_shapes
from codea1.models.qwen2 import Params
from codea1.runtime.errors import BadInput

# A folder with the first is one of adapters, on a base that lies elsewhere.
CONFIG, WEIGHTS, BASE = "adapter_config.json", "adapter_model.safetensors", "base.json"

# Of the linear layers, by the path of the kernel without its ending: PEFT's name.
MODULES = {
    path.removesuffix("_kernel"): tensor.name.split(".")[-2]
    for path, tensor in TENSORS.items()
    if path.endswith("_kernel")
}
# What a key may say. Null, false and empty are fine for any other key too: they turn a feature of PEFT off, so one of a
# later version is refused where it is on. Other ways to initialise adapters change the base as well.
_SUPPORTED = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM",),
    "bias": ("none",),
    "init_lora_weights": (True, "gaussian", "orthogonal"),
}
# Keys that `Adapters` reads, that matter in training alone, or that are set although their feature is off.
_ANYTHING = {"r", "lora_alpha", "target_modules", "base_model_name_or_path", "revision", "peft_version", "auto_mapping"}
_ANYTHING |= {"inference_mode", "lora_dropout", "megatron_core", "qalora_group_size", "use_rslora", "alpha_pattern"}
_DEFAULTS = {"r": 8, "lora_alpha": 8}  # PEFT's


class Base(NamedTuple):
    """The model that adapters belong to."""

    name: str  # its folder, or another name
    checksum: str | None  # of `huggingface.Checkpoint`; None where it is not known, as PEFT does not


class Adapters:
    """LoRA on all linear layers or on some, in a folder that `save` or PEFT wrote.

    An adapter adds `alpha` / `rank` times the product of its halves to a kernel of the `base`. Where PEFT scales it in
    another way, by use_rslora or alpha_pattern, the second half is multiplied by what makes both the same.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Reads what the folder says of its adapters, not yet these.

        Raises BadInput naming the file and the key that is missing, malformed or asks for what is not supported.
        """
        self._folder = ModelFolder(folder)
        path, raw = self._folder.file(CONFIG), self._folder.read_json(CONFIG)
        if "peft_type" not in raw:
            raise BadInput(f"{path}: key peft_type is missing.")
        for key, value in raw.items():
            supported = _SUPPORTED.get(key, ())
            if value not in supported and (value or key == "peft_type") and key not in _ANYTHING:
                instead = f"only {' or '.join(map(repr, supported))} is" if supported else "which is not"
                raise BadInput(f"{path}: {key} is {value!r}, {instead} supported.")
        raw = _DEFAULTS | raw
        self.rank: int = config_json.number(path, raw, "r", int)
        if self.rank < 1:
            raise BadInput(f"{path}: r must be at least 1, got {self.rank}.")
        self.alpha: float = config_json.number(path, raw, "lora_alpha", float)
        self._alphas = _alpha_pattern(path, raw.get("alpha_pattern") or {})
        self._rank_factor = math.sqrt(self.rank) if raw.get("use_rslora") else 1.0
        if self._alphas and not self.alpha:
            raise BadInput(f"{path}: lora_alpha must not be 0 where there is an alpha_pattern.")
        modules, supported = raw.get("target_modules"), [*MODULES.values()]
        names = modules if isinstance(modules, list) else []
        # Of a small model PEFT lists them layer by layer; that no layer is left out, the tensors show.
        self._modules = {str(name).rpartition(".")[2] for name in names}
        if not self._modules or not self._modules <= {*supported}:
            raise BadInput(f"{path}: target_modules is {modules!r}, it must list some of {', '.join(supported)}.")
        base = self._folder.read_json(BASE) if BASE in self._folder.names() else {}
        self.base = Base(str(raw.get("base_model_name_or_path") or ""), base.get("checksum"))
        self._base_was = str(base.get("name") or "")

    def checksum(self) -> str:
        """Returns the checksum of the tensors' file, which is read whole."""
        return self._folder.checksum(WEIGHTS).crc32c

    def base_folder(self) -> ModelFolder:
        """Returns the folder of the base. Raises BadInput naming it and the key, where no model can be read there."""
        key = f"{self._folder.file(CONFIG)}: base_model_name_or_path is {self.base.name!r}"
        try:
            for name in filter(None, (self.base.name, self._base_was)):
                if (folder := ModelFolder(name)).holds_model():
                    return folder
        except BadInput as error:
            raise BadInput(f"{key}: {error}") from None
        raise BadInput(f"{key}, where no model is; it must be the base's folder or URL.")

    def require_base(self, checksum: str) -> None:
        """Raises BadInput naming both checksums, where that of the base is known and is another than the adapters'."""
        if self.base.checksum not in (None, checksum):
            raise BadInput(
                f"{self._folder.file(BASE)}: the adapters belong to a base with checksum {self.base.checksum}, and "
                f"{self.base.name} has {checksum}."
            )

    def place(
        self, config: Qwen2Config, checksum: str, shardings: Any, dtype: DTypeLike, absent: Params | None = None
    ) -> Params:
        """Returns the adapters on the devices of `shardings`, shaped like them, in `dtype`.

        Args:
          config: of the base.
          checksum: of the base, by `huggingface.Checkpoint`.
          shardings: of adapters on all linear layers, nested as parameters are.
          dtype: of the adapters.
          absent: adapters for linear layers that the folder has none for. Zeros by default: they change no answer, and
            cannot learn to, for where both halves are zero neither has a gradient.

        Raises BadInput naming the file, and the tensor that is missing, left over or of another shape; adapters on
        experts; or the two checksums, where the base is not the one that the adapters belong to.
        """
        self.require_base(checksum)
        where = flatten_dict(shardings, sep=".")
        every = parameter_shapes(dataclasses.replace(config, lora_rank=self.rank))
        shapes = {path: shape for path, shape in every.items() if "_lora_" in path}
        if beyond := self._modules - {MODULES[linear_of(path)] for path in shapes}:
            raise BadInput(
                f"{self._folder.file(CONFIG)}: target_modules lists {', '.join(sorted(beyond))}, but a mixture of "
                "experts has adapters on its attention alone."
            )
        present = {path: shape for path, shape in shapes.items() if MODULES[linear_of(path)] in self._modules}
        stored = StoredTensors(self._folder, [WEIGHTS], present)
        placed = flatten_dict(absent or {}, sep=".") | stored.place({path: where[path] for path in present}, dtype)
        for path, shape in shapes.items():
            if path not in placed:
                placed[path] = jnp.zeros(shape, dtype, device=where[path])
            factors = self._factors(path, config.num_layers) if path in present else [1.0]
            if {*factors} != {1.0}:
                multiply = jax.jit(_multiplied, out_shardings=where[path])
                placed[path] = multiply(placed[path], jnp.asarray(factors, jnp.float32))
        return unflatten_dict(placed, sep=".")

    def _factors(self, path: str, num_layers: int) -> list[float]:
        """Returns what a second half is multiplied by, layer by layer; 1 for a first half."""
        if path.endswith("_a"):
            return [1.0]
        factors = []
        for layer in range(num_layers):
            name = TENSORS[path].name_of([layer])
            module = name.removeprefix("base_model.model.").removesuffix(".lora_B.weight")
            alphas = (alpha for pattern, alpha in self._alphas.items() if pattern.match(module))
            factors.append(self._rank_factor * next((alpha / self.alpha for alpha in alphas), 1.0))
        return factors


def _alpha_pattern(path: str, raw: Any) -> dict[re.Pattern[str], float]:
    """Returns the alphas of the modules whose names match, of which the first counts, as in PEFT."""
    try:
        return {re.compile(rf"(.*\.)?({name})$"): config_json.number(path, raw, name, float) for name in raw}
    except (TypeError, re.error) as error:
        raise BadInput(f"{path}: alpha_pattern is {raw!r}, no numbers by names of modules ({error}).") from None


def _multiplied(half: jax.Array, factors: jax.Array) -> jax.Array:
    return (half * factors.reshape(-1, *[1] * (half.ndim - 1))).astype(half.dtype)


def linear_of(path: str) -> str:
    """Returns the path of an adapter's half without its ending."""
    return path.rpartition("_lora_")[0]
