"""The speed of an update against arithmetic done by hand, and the peaks against what the chips are called."""

from types import SimpleNamespace

import numpy as np
import pytest

from codea1.lab.aot import work
from codea1.lab.aot.topology import topology
from codea1.lab.aot.work import CHIPS
from codea1.models.config import PUBLISHED
from codea1.models.flops import PEAK_FLOPS, utilisation
from codea1.runtime.extras import is_installed

MODEL = PUBLISHED["qwen2.5-coder-1.5b"]
LENGTHS = [100, 300, 50]


def mesh_of(kind: str, count: int) -> SimpleNamespace:
    devices = np.array([SimpleNamespace(device_kind=kind)] * count, object).reshape(1, count, 1)
    return SimpleNamespace(devices=devices, size=count)


def test_the_speed_is_six_operations_per_weight_and_token_and_attention():
    found = utilisation(MODEL, LENGTHS, [], 0.5, mesh_of("cpu", 1))
    # Kaplan et al. 2020, with the half of all pairs that a causal mask leaves: 12 * layers * width * length / 2.
    attention = sum(6 * MODEL.num_layers * MODEL.num_heads * MODEL.head_dim * length**2 for length in LENGTHS)
    expected = 6 * work.num_weights(MODEL) * sum(LENGTHS) + attention
    assert found == {"update_tflops_per_second": pytest.approx(expected / 0.5 / 1e12, rel=1e-6)}


def test_a_prompt_that_was_computed_once_counts_once():
    once = utilisation(MODEL, [100, 300, 50], [40, 40], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
    responses = [
        utilisation(MODEL, [length], [40], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
        for length in (100, 300, 50)
    ]
    prompt = utilisation(MODEL, [40], [], 1.0, mesh_of("cpu", 1))["update_tflops_per_second"]
    assert once == pytest.approx(prompt + sum(responses))


def test_mfu_is_a_share_of_the_peak_of_all_devices():
    found = utilisation(MODEL, LENGTHS, [], 0.5, mesh_of("TPU v5 lite", 4))
    assert found["update_mfu"] == pytest.approx(found["update_tflops_per_second"] / (4 * 197))


@pytest.mark.skipif(not is_installed("libtpu"), reason="libtpu is not installed")
@pytest.mark.parametrize("name", ["v5e-4", "v6e-4", "v5p-8"])
def test_the_chips_that_are_compiled_for_have_their_peak(name):
    kinds = {device.device_kind for device in topology(name).devices}
    assert {PEAK_FLOPS[kind] for kind in kinds} == {CHIPS[name.partition("-")[0]].flops}
