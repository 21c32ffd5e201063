"""Generation on eight virtual devices, and by two processes, against one device."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


def start(*arguments: str, devices: int) -> subprocess.Popen:
    # Unoptimised, programs of this size compile in half the time.
    flags = {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(ROOT / "tests" / "rollout_on_mesh.py"), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | flags, **pipes)


def result(run: subprocess.Popen) -> dict:
    output, errors = run.communicate(timeout=600)
    assert run.returncode == 0, errors[-3000:]
    return json.loads(output.splitlines()[-1])


@pytest.fixture(scope="module")
def one() -> dict:
    return result(start("1", "1", devices=1))


@pytest.fixture(scope="module")
def eight() -> dict:
    return result(start("4", "2", devices=8))


@pytest.fixture(scope="module")
def both() -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return [result(run) for run in [start("2", "2", address, str(rank), devices=2) for rank in range(2)]]


def assert_agree(found: dict, expected: dict) -> None:
    """Rounding may flip a token on another layout; up to the first flip, log-probs are the same."""
    assert found["samples"].keys() == expected["samples"].keys()
    flipped = 0
    for name, (tokens, log_probs, _) in found["samples"].items():
        expected_tokens, expected_log_probs, _ = expected["samples"][name]
        same = [a == b for a, b in zip(tokens, expected_tokens, strict=False)]
        length = same.index(False) if False in same else len(same)
        np.testing.assert_allclose(log_probs[:length], expected_log_probs[:length], atol=2e-4)
        flipped += tokens != expected_tokens
    assert flipped <= 1


def test_eight_devices_draw_what_one_draws(one, eight):
    assert len(one["samples"]) == 30
    assert_agree(eight, one)


def test_two_processes_draw_what_one_draws_and_both_know_all_of_it(one, both):
    assert both[0] == both[1]
    assert_agree(both[0], one)


def test_nothing_is_compiled_after_warm_up_on_any_mesh(one, eight, both):
    for run in (one, eight, *both):
        assert run["compiled_late"] == 0
        assert run["published_equal"]
        assert run["statistics"]["samples"] == 30
