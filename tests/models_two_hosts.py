"""One of two hosts with two devices each that import a model, look at what they have read, and write it again.

Then they write adapters for it that are cut as its kernels are, read them, and merge them.
"""

import math
from collections import Counter

import jax
import numpy as np
from absl import flags
from flax.traverse_util import flatten_dict, unflatten_dict
from jax.experimental.multihost_utils import sync_global_devices
from jax.sharding import NamedSharding, PartitionSpec

from codea1.lab import model_writer
from codea1.models import huggingface, peft, qwen2
from codea1.models.files import ModelFolder
from codea1.runtime import command
from codea1.sharding import TRAIN_RULES, make_mesh, param_shardings
from tests.model_folders import load
from tests.models_peft_test import draw

FOLDER = flags.DEFINE_string("folder", None, "model")
OUTPUT = flags.DEFINE_string("output", None, "folder to write")
HOSTS = command.define_hosts()

read: Counter[str] = Counter()  # bytes, by file
read_ranges = ModelFolder.read_ranges


def counted(self: ModelFolder, ranges: list[tuple[str, int, int]]) -> list[bytes]:
    for name, start, stop in ranges:
        read[name] += stop - start
    return read_ranges(self, ranges)


def _assert_parts(array: jax.Array, whole: np.ndarray) -> None:
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(shard.data, whole[shard.index])


def main() -> None:
    hosts = HOSTS()
    ModelFolder.read_ranges = counted
    checkpoint = huggingface.Checkpoint(FOLDER.value)
    config = checkpoint.config
    _, abstract = qwen2.abstract(config)
    mesh = make_mesh(1, 2, 2)
    assert {device.process_index for device in mesh.devices[0, hosts.index]} == {hosts.index}
    headers, shardings = sum(read.values()), param_shardings(abstract, mesh, TRAIN_RULES)
    params = checkpoint.place(shardings, config.param_dtype)

    whole = flatten_dict(load(FOLDER.value)[1], sep=".")
    needed = 0
    for path, array in flatten_dict(params, sep=".").items():
        _assert_parts(array, whole[path])
        # Rows of these two are the dimension that fsdp cuts, here between the hosts; others are needed by both.
        needed += array.nbytes // (2 if path.endswith(("o_kernel", "down_kernel")) else 1)
    loaded = headers + sum(math.prod(x.shape) * x.dtype.itemsize for x in whole.values())
    assert sum(read.values()) - headers - loaded == needed, (read, headers, loaded, needed)

    model_writer.save(OUTPUT.value, config, params)

    cuts = {}
    for path, kernel in flatten_dict(shardings, sep=".").items():
        if path.endswith("_kernel"):
            layers, *dimensions = kernel.spec
            inputs = huggingface.TENSORS[path].inputs
            specs = {"a": (layers, *dimensions[:inputs], None), "b": (layers, None, *dimensions[inputs:])}
            for half, spec in specs.items():
                cuts[path.replace("_kernel", f"_lora_{half}")] = NamedSharding(mesh, PartitionSpec(*spec))
    cuts, drawn = unflatten_dict(cuts, sep="."), draw(config)
    adapters = jax.device_put(drawn, cuts)
    model_writer.save_adapters(
        f"{OUTPUT.value}-adapters", adapters, alpha=1, base=peft.Base("base", checkpoint.checksum())
    )
    sync_global_devices("the adapters are written")
    placed = peft.Adapters(f"{OUTPUT.value}-adapters").place(config, checkpoint.checksum(), cuts, "float32")
    jax.tree.map(_assert_parts, placed, drawn)
    jax.tree.map(
        _assert_parts,
        model_writer.merged(params, placed, 2.0),
        model_writer.merged(unflatten_dict(whole, sep="."), drawn, 2.0),
    )
    assert len(jax.local_devices()) == 2


if __name__ == "__main__":
    command.run(main)
