"""Import and export at the full shape of Qwen2.5-Coder-1.5B: seconds and peak memory of each phase, logits, equality.

  python bench/full_size_import.py [--folder=SCRATCH]     # 7 GB of disk, 16 GiB of memory, some minutes; needs torch

By hand. Writes random bfloat16 weights with safetensors' own library, in several files; imports them on eight virtual
devices, weights cut as in training over fsdp 4 x tensor 2; computes the logits of one prompt in float32; exports;
compares every tensor's bytes; imports the export and compares the logits, bit for bit; and compares with the logits of
`transformers`, float32 on the same weights, in a process of its own.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import ml_dtypes
import numpy as np
from flax import nnx
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file

from codea1.lab import model_writer
from codea1.models import qwen2
from codea1.models.config import PUBLISHED
from codea1.models.files import ModelFolder
from codea1.models.huggingface import TENSORS, Checkpoint
from codea1.models.safetensors_header import Entry, read_header
from codea1.sharding import TRAIN_RULES, make_mesh, param_shardings

SHAPE = PUBLISHED["qwen2.5-coder-1.5b"]
PROMPT = np.random.default_rng(1).integers(0, SHAPE.vocab_size, (1, 16)).astype(np.int32)
NEEDED = 16 << 30  # bytes of memory


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Prints the seconds inside and the most memory that the process held meanwhile."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    started = time.monotonic()
    yield
    seconds = time.monotonic() - started
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(f"{name:<24} {seconds:7.1f} s   peak {peak / 2**20:5.2f} GiB", flush=True)


def write_random(folder: Path) -> None:
    """A checkpoint whose every tensor matters: biases are not 0, norms are not 1."""
    rng = np.random.default_rng(0)
    _, params = qwen2.abstract(SHAPE)
    arrays = flatten_dict(nnx.to_pure_dict(params), sep=".")
    weight_map: dict[str, str] = {}

    def write(number: int, wanted: dict[str, tuple[int, ...]]) -> None:
        tensors = {}
        for name, shape in wanted.items():
            noise = rng.standard_normal(shape, np.float32)
            tensors[name] = (1 + 0.1 * noise if "norm" in name else 0.03 * noise).astype(ml_dtypes.bfloat16)
        file = f"model-{number:05d}.safetensors"
        save_file(tensors, folder / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(wanted, file))

    alone = {path: array.shape for path, array in arrays.items() if not TENSORS[path].stacked}
    write(0, {TENSORS[path].name: TENSORS[path].stored_shape(shape) for path, shape in alone.items()})
    stacked = {path: array.shape[1:] for path, array in arrays.items() if TENSORS[path].stacked}
    for layer in range(SHAPE.num_layers):
        names = {TENSORS[path].name.format(layer=layer): TENSORS[path].stored_shape(s) for path, s in stacked.items()}
        write(1 + layer, names)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps(model_writer.config_content(SHAPE, "bfloat16")))


def imported(folder: Path) -> qwen2.Params:
    _, abstract = qwen2.abstract(SHAPE)
    shardings = param_shardings(abstract, make_mesh(1, 4, 2), TRAIN_RULES)
    return jax.block_until_ready(Checkpoint(folder).place(shardings, "bfloat16"))


def logits(params: qwen2.Params) -> np.ndarray:
    """Of the prompt, [T, V]; activations and sums in float32."""
    graphdef, _ = qwen2.abstract(dataclasses.replace(SHAPE, param_dtype="bfloat16"))

    @jax.jit
    def forward(params: qwen2.Params) -> jax.Array:
        model = nnx.merge(graphdef, params)
        hidden, _ = model(PROMPT, np.arange(PROMPT.shape[1], dtype=np.int32)[None])
        return model.logits(hidden)[0]

    return np.asarray(forward(params))


def tensors_that_differ(one: ModelFolder, other: ModelFolder) -> list[str]:
    """Names of tensors that are not in both, with the same bytes."""

    def headers(folder: ModelFolder) -> dict[str, Entry]:
        files = [file for file in folder.names() if file.endswith(".safetensors")]
        return {name: entry for file in files for name, entry in read_header(folder, file).items()}

    def content(folder: ModelFolder, entry: Entry) -> tuple[str, tuple[int, ...], bytes]:
        return entry.dtype, entry.shape, folder.read_ranges([(entry.file, entry.start, entry.stop)])[0]

    ours, theirs = headers(one), headers(other)
    shared = ours.keys() & theirs.keys()
    changed = {name for name in shared if content(one, ours[name]) != content(other, theirs[name])}
    return sorted(changed | (ours.keys() ^ theirs.keys()))


def reference(folder: Path, out: Path) -> None:
    """Writes the logits of transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    with phase("transformers: load"):
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    with phase("transformers: logits"), torch.no_grad():
        np.save(out, model(torch.tensor(PROMPT)).logits[0].numpy())


def check(scratch: Path) -> None:
    """All phases; raises SystemExit where something differs."""
    source, exported, theirs = scratch / "source", scratch / "exported", scratch / "logits.npy"
    source.mkdir()
    with phase("write random weights"):
        write_random(source)
    size = sum(path.stat().st_size for path in source.iterdir())
    print(f"{len(list(source.iterdir()))} files, {size / 2**30:.2f} GiB; load average {os.getloadavg()[0]:.1f}")
    with phase("import"):
        params = imported(source)
    with phase("logits"):
        ours = logits(params)
    with phase("export"):
        model_writer.save(exported, SHAPE, params)
    with phase("compare the files"):
        different = tensors_that_differ(ModelFolder(source), ModelFolder(exported))
    del params
    with phase("import the export"):
        params = imported(exported)
    with phase("logits of the export"):
        again = logits(params)
    del params
    subprocess.run([sys.executable, __file__, f"--reference={exported}", f"--out={theirs}"], check=True)
    difference = np.abs(ours - np.load(theirs)).max()
    print(f"logits: deviation {ours.std():.2f}, largest difference from transformers {difference:.1e}")
    print(f"tensors whose bytes differ after export: {len(different)}; logits equal: {np.array_equal(ours, again)}")
    print(f"peak of the whole: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB here")
    if different or not np.array_equal(ours, again) or difference > 1e-3:
        raise SystemExit("export or logits differ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="where to make the temporary folder")
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reference:
        reference(given.reference, given.out)
        return
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) << 10
    if available < NEEDED:
        raise SystemExit(f"{available / 2**30:.1f} GiB of memory are free, {NEEDED >> 30} are needed.")
    with tempfile.TemporaryDirectory(dir=given.folder) as scratch:
        check(Path(scratch))


if __name__ == "__main__":
    main()
