"""The mesh, its rules, and a model cut over devices that do not exist.

A process has one set of devices, so eight virtual devices live in a process of their own; what it checks is written in
sharding_eight_devices.py.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import jax
import pytest
from jax.sharding import AxisType

from codea1 import sharding
from codea1.models.config import PUBLISHED, require_divisible, tiny_model
from codea1.runtime.errors import BadInput
from tests.host_processes import Process, outputs

SEVEN = PUBLISHED["qwen2.5-coder-7b"]
THREE = PUBLISHED["qwen2.5-coder-3b"]


def mesh_of(**sizes: int) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh(tuple(sizes.get(axis, 1) for axis in sharding.MESH_AXES), sharding.MESH_AXES)


def test_the_model_on_eight_devices():
    ((code, printed, _),) = outputs([Process(("-m", "pytest"), "-q", "tests/sharding_eight_devices.py", devices=8)])
    assert code == 0, printed


@pytest.mark.parametrize(("config", "fsdp", "tensor"), [(SEVEN, 256, 4), (SEVEN, 1, 1), (THREE, 64, 2)])
def test_even_cuts_are_accepted(config, fsdp, tensor):
    require_divisible(config, mesh_of(fsdp=fsdp, tensor=tensor))


@pytest.mark.parametrize(
    ("config", "sizes", "complaint"),
    [
        (SEVEN, {"tensor": 8}, "tensor 8 does not divide the model's num_kv_heads 4: use 4"),
        (THREE, {"tensor": 4}, "tensor 4 does not divide the model's num_kv_heads 2: use 2"),
        (THREE, {"tensor": 3}, "num_kv_heads 2 or intermediate_size 11008 or vocab_size 151936: use 2"),
        (tiny_model(vocab_size=287), {"tensor": 2}, "does not divide the model's vocab_size 287: use 1"),
        (SEVEN, {"fsdp": 500}, "fsdp 500 does not divide the model's hidden_size 3584: use 512"),
    ],
)
def test_uneven_cuts_are_refused_with_what_works(config, sizes, complaint):
    with pytest.raises(BadInput, match=complaint):
        require_divisible(config, mesh_of(**sizes))


def test_the_mesh_takes_the_devices_there_are():
    count = jax.device_count()
    assert sharding.make_mesh(1, -1, 1).shape == {"replica": 1, "fsdp": count, "tensor": 1}
    mesh = sharding.make_mesh(1, 1, 1, devices=jax.devices()[:1])
    assert mesh.axis_types == (AxisType.Auto,) * 3


@pytest.mark.parametrize("sizes", [(1, 3, 1), (2, -1, 2), (1, 1, 0), (0, -1, 1), (1, -2, 1)])
def test_a_mesh_that_does_not_fit_is_refused(sizes):
    with pytest.raises(BadInput, match="does not multiply to the 1 devices"):
        sharding.make_mesh(*sizes, devices=jax.devices()[:1])


@pytest.mark.parametrize(
    ("topology", "platform", "count", "fits"),
    [
        ("v5e-16", "tpu", 16, True),
        ("2xv5e-16", "tpu", 32, True),
        ("v5p-32", "tpu", 16, True),  # cores, two a chip
        ("v5e-16", "gpu", 8, True),
        ("", "tpu", 8, True),
        ("v5e:4x4", "tpu", 8, True),  # a shape is not counted
        ("v5e-16", "tpu", 32, False),
        ("2xv5e-16", "tpu", 16, False),
        ("v5e-16", "tpu", 4, False),  # one host of four
    ],
)
def test_a_slice_other_than_the_configs_is_refused(topology, platform, count, fits):
    devices = [SimpleNamespace(platform=platform)] * count
    with (
        nullcontext() if fits else pytest.raises(BadInput, match=rf"{topology}, which has .* and this run has {count}:")
    ):
        sharding.require_topology(topology, devices)
