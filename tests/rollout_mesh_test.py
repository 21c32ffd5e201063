"""Generation by two hosts with two devices each, against one device."""

import json

import numpy as np
import pytest

from tests.host_processes import finish, start_two
from tests.rollout_on_mesh import FEW_LEFT, generated


@pytest.fixture(scope="module")
def one() -> dict:
    return json.loads(json.dumps(generated(1, 1)))


@pytest.fixture(scope="module")
def both() -> list[dict]:
    printed = finish(*start_two(("tests/rollout_on_mesh.py",)))
    return [json.JSONDecoder().raw_decode(each, each.index('{"samples"'))[0] for each in printed]


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


def test_two_hosts_draw_what_one_device_draws_and_both_know_all_of_it(one, both):
    assert len(one["samples"]) == 30
    assert both[0] == both[1]
    assert_agree(both[0], one)


def test_replicas_whose_chunks_end_after_as_many_steps_as_have_room_draw_the_same(both):
    found, expected = both[0]["replicas"], json.loads(json.dumps(generated(1, 1, **FEW_LEFT)))
    assert_agree(found, expected)


def test_nothing_is_compiled_after_warm_up_on_any_mesh(one, both):
    for run in (one, *both):
        assert run["compiled_late"] == 0
        assert run["published_equal"]
        assert run["statistics"]["samples"] == 30
