"""What attention's kernels cost by their own schedules: the bundles into which the TPU compiler lays out their loops.

The compiler estimates no cycles for a Pallas kernel, but it writes the kernel's bundles of instructions where it is
asked to. A core begins one bundle in a cycle at most, so the bundles of a loop's body are about the least cycles of one
turn: stalls come on top, and what is predicated off comes off.

  python -m codea1.lab.aot.kernels    # the process in which `bundles` compiles; libtpu reads its flags but once
"""

import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from etils import epath

from codea1.lab.aot.cost import REACHED
from codea1.lab.aot.topology import ENVIRONMENT, topology
from codea1.lab.aot.work import Chip
from codea1.models import attention, grouped_attention, kv_cache
from codea1.models.attention import Packing, splash_block
from codea1.models.grouped_attention import OWN_BLOCK, SHARED_BLOCK
from codea1.models.kv_cache import PageTable, page_bytes
from codea1.players.functions import PlayerFunctions
from codea1.sharding import data_parallel
from codea1.storage.objects import write_atomically

_BUNDLE = re.compile(r"\s*0x[0-9a-f]+\s+(\w\w)?\s*:\s*(>*)")
_ONE_CHIP = {"v5e": "v5e:1x1", "v6e": "v6e:1x1", "v5p": "v5p:2x2x1"}  # v5p has no smaller slice
_PAGES, _FORWARD, _BACKWARD = "grouped_paged_attention", ("splash_mqa_fwd",), ("splash_mqa_dq", "splash_mqa_dkv")


@dataclass(frozen=True)
class AttentionShape:
    """The shapes of one attention on one chip, as a kernel is compiled for them."""

    chip: str
    heads: int
    kv_heads: int
    head_dim: int
    queries: int = 0  # of a row that decodes; 0: whole rows, by blocks of `block`
    rows: int = 1
    pages: int = 1
    longest: int = 1  # pages of a row
    block: int = 0
    packed: bool = False  # whether rows hold several sequences


class Bundles(NamedTuple):
    """Bundles of the kernels of one attention. Of whole rows by pair of blocks, of one head."""

    call: int = 0
    group: int = 0  # around its blocks
    shared_block: int = 0
    row: int = 0
    own_block: int = 0
    forward: int = 0
    backward: int = 0


BundlesByShape = Mapping[AttentionShape, Bundles]


def bundles(wanted: Sequence[AttentionShape], cache: Path) -> BundlesByShape:
    """Returns the bundles of each attention; compiles those in a process of its own that `cache` does not know.

    Raises RuntimeError with what the process printed where it fails.
    """
    file = epath.Path(cache) / f"kernels-{_versions()}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    missing = [each for each in dict.fromkeys(wanted) if repr(each) not in known]
    if missing:
        with tempfile.TemporaryDirectory() as folder:
            flags = f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true"
            environment = os.environ | ENVIRONMENT | {"LIBTPU_INIT_ARGS": flags, "JAX_PLATFORMS": "cpu"}
            command = [sys.executable, "-m", "codea1.lab.aot.kernels", folder]
            asked = json.dumps([asdict(each) for each in missing])
            done = subprocess.run(command, input=asked, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the schedules of attention were not compiled: {done.stderr[-2000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        known |= {repr(each): found_of for each, found_of in zip(missing, found, strict=True)}
        write_atomically(file, json.dumps(known, indent=2) + "\n")
    return {each: Bundles(*known[repr(each)]) for each in wanted}


def _versions() -> str:
    """Names all that decides the bundles of a shape: compiler, JAX's kernels, how they are called, what is counted."""
    sources = [inspect.getsource(module) for module in (attention, grouped_attention, kv_cache, sys.modules[__name__])]
    digest = hashlib.sha256("".join(sources).encode()).hexdigest()
    versions = [metadata.version(package) for package in ("jax", "libtpu")]
    return "-".join([*versions, digest[:12]])


class KernelTimes:
    """Seconds that attention's kernels take on the busiest chip of a player; 0 where attention is no kernel."""

    def __init__(
        self, own: PlayerFunctions, chip: Chip, bundles: Callable[[Sequence[AttentionShape]], BundlesByShape]
    ) -> None:
        """Looks up the bundles of what the player's functions call; see `bundles`."""
        self._own, self._chip = own, chip
        tensor, model, sizes = own.mesh.shape["tensor"], own.model, own.engine.sizes
        heads = model.num_heads // tensor, model.num_kv_heads // tensor, model.head_dim
        self._any = AttentionShape(chip.name, *heads)
        self._bundles: BundlesByShape = {}
        if model.platform == "tpu":
            queries = [1, 1 + own.engine.guesses]
            decode = [self._decode(size // sizes.shards, each) for size in sizes.slots for each in queries]
            rows = [self._rows(length, packed=False) for length in sizes.prompt_lengths]
            rows += [self._rows(shape.length, packed) for shape in own.row_shapes for packed in (False, True)]
            self._bundles = bundles([*decode, *rows])

    def _decode(self, rows: int, queries: int) -> AttentionShape:
        sizes = self._own.engine.sizes
        return replace(self._any, rows=rows, queries=queries, pages=sizes.pages, longest=sizes.longest)

    def _rows(self, length: int, packed: bool) -> AttentionShape:
        return replace(self._any, block=splash_block(length), packed=packed)

    def decode(self, table: PageTable, positions_WS: np.ndarray, queries: int) -> float:
        """Returns the seconds of one decode step, of so many queries a row, whose rows have come to such positions.

        Pages are read and computed side by side: a reader takes the longer of the two.
        """
        if not self._bundles:
            return 0.0
        assert table.members_WGR is not None
        assert table.num_shared_B is not None
        shards, rows = positions_WS.shape
        found, layers = self._bundles[self._decode(rows, queries)], self._own.model.num_layers
        page = page_bytes(self._own.model, self._own.mesh.shape["tensor"]) / layers  # of one layer on one chip
        read = page / (REACHED * self._chip.hbm_bandwidth)

        def seconds(pages: np.ndarray, block: int, of_block: int, of_reader: int) -> np.ndarray:
            turns = -(-pages // block)
            computed = (turns * of_block + (pages > 0) * of_reader) / self._chip.clock
            return np.maximum(computed, pages * read).sum(axis=1)

        first_WS = np.asarray(table.num_shared_B).reshape(shards, rows)
        leader_WG = np.asarray(table.members_WGR)[..., 0]
        shared_WG = np.where(leader_WG < 0, 0, np.take_along_axis(first_WS, np.maximum(leader_WG, 0), axis=1))
        own_WS = np.maximum(-(-(positions_WS + queries) // self._own.engine.sizes.page) - first_WS, 1)
        of_layer_W = seconds(shared_WG, SHARED_BLOCK, found.shared_block, found.group)
        of_layer_W += seconds(own_WS, OWN_BLOCK, found.own_block, found.row)
        return float(layers * (of_layer_W.max() + found.call / self._chip.clock))

    def whole_rows(
        self, shape: tuple[int, ...], packing: Packing | None = None, forward: int = 1, backward: int = 0
    ) -> float:
        """Returns the seconds of so many passes over rows [rows, length].

        The forward kernel shares its heads out to the cores of a chip. The kernels of the backward pass run on one.
        """
        if not self._bundles:
            return 0.0
        own, (rows, length) = self._own, shape
        found = self._bundles[self._rows(length, packing is not None)]
        count = -(-length // splash_block(length))
        pairs_B = np.full(rows, count * (count + 1) / 2)
        if packing is not None:
            pairs_B = np.asarray(packing.for_kernel().reads_BQJ).sum(axis=(1, 2), dtype=float)
        pairs = pairs_B.reshape(data_parallel(own.mesh), -1).sum(axis=1).max()
        heads = self._any.heads
        turns = forward * found.forward * -(-heads // self._chip.cores) + backward * found.backward * heads
        return float(own.model.num_layers * pairs * turns / self._chip.clock)


def count_bundles(text: str) -> list[int]:
    """Returns the bundles of a kernel's listing outside of its loops, and then in each loop without those inside it."""
    counts, innermost = [0], {0: 0}  # by depth
    for label, inside in (found.groups() for found in map(_BUNDLE.match, text.splitlines()) if found):
        if label == "LB":
            innermost[len(inside)] = len(counts)
            counts.append(0)
        counts[innermost[len(inside)]] += 1
    return counts


def _compile(each: AttentionShape, folder: Path) -> Bundles:
    """Compiles one attention and reads what the compiler wrote of it into the folder, which is then empty again."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

    from codea1.models.attention import splash_attend
    from codea1.models.grouped_attention import MEMBERS, attend_grouped
    from codea1.models.kv_cache import num_groups, page_size
    from codea1.sharding import MESH_AXES

    devices = np.array(topology(_ONE_CHIP[each.chip]).devices[:1]).reshape(1, 1, 1)
    mesh = Mesh(devices, MESH_AXES, axis_types=(AxisType.Auto,) * devices.ndim)

    def array(dtype: Any, *shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec()))

    H, K, h = each.heads, each.kv_heads, each.head_dim
    with jax.set_mesh(mesh):
        if each.queries:
            B, T, P = each.rows, each.queries, page_size("tpu")
            padded = -(-h // 128) * 128
            q, kv = array(jnp.bfloat16, B, T, H, h), array(jnp.bfloat16, 1, each.pages, P, 2 * K, padded)
            groups = array(jnp.int32, B), array(jnp.int32, 1, num_groups(B), MEMBERS)
            tables = array(jnp.int32), array(jnp.int32, B, each.longest), *groups, array(jnp.int32, B, T)

            def attend(*arrays: Any) -> Any:
                return jax.shard_map(
                    attend_grouped, in_specs=PartitionSpec(), out_specs=PartitionSpec(), check_vma=False
                )(*arrays)

            jax.jit(attend).lower(q, kv, *tables).compile()
        else:
            T = 4 * each.block

            def loss(q: Any, k: Any, v: Any, *packing: Any) -> Any:
                packed = Packing(*packing).for_kernel() if packing else None
                return jnp.sum(splash_attend(q, k, v, packed), dtype=jnp.float32)

            tokens = [array(jnp.int32, 1, T)] * (3 * each.packed)
            qkv = [array(jnp.bfloat16, 1, T, heads, h) for heads in (H, K, K)]
            jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(*qkv, *tokens).compile()
    counts: dict[str, list[int]] = {}
    for path in folder.iterdir():
        found = re.search(r"-(grouped_paged_attention|splash_mqa_[a-z]+)[\w.]*-\d+-final_bundles\.txt", path.name)
        if found:
            counts[found[1]] = count_bundles(path.read_text())
        path.unlink()

    def of(names: Sequence[str]) -> int:
        kernels = [count for kernel, count in counts.items() if kernel.startswith(tuple(names))]
        assert len(kernels) == len(names), f"{names} of {sorted(counts)}"
        return sum(sum(count[1:]) for count in kernels)

    if each.queries:
        *shared, own = counts[_PAGES]
        call, group, shared_block, *row = shared
        return Bundles(call, group, shared_block, sum(row), own)  # a loop of one row is none
    return Bundles(forward=of(_FORWARD), backward=of(_BACKWARD))


def main() -> None:
    import jax

    jax.config.update("jax_enable_compilation_cache", False)
    wanted = [AttentionShape(**each) for each in json.load(sys.stdin)]
    print(json.dumps([_compile(each, Path(sys.argv[1])) for each in wanted]))


if __name__ == "__main__":
    main()
