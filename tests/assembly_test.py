"""The parts of a run, given the states of its checkpoints."""

import jax
import numpy as np

from codea1.config import config_of
from codea1.runs.checkpoints import Checkpoints
from codea1.training.setup import assemble


def test_memory_is_given_back_before_a_step_is_restored(run, monkeypatch):
    parts = assemble(config_of(run))
    checkpoints = Checkpoints.reader(run.checkpoints)
    starts = {name: policy.params for name, policy in parts.policies.items()}
    held = []
    restore_part = Checkpoints.restore_part
    monkeypatch.setattr(
        Checkpoints,
        "restore_part",
        lambda *arguments: (
            held.extend(policy.state for policy in parts.policies.values()),
            restore_part(*arguments),
        )[1],
    )
    for step, factor in ((3, 1.5), (6, 2.5)):
        parts.restore(checkpoints, step)
        for by, (name, policy) in zip((factor, -factor), parts.policies.items(), strict=True):
            jax.tree.map(
                lambda moved, start, by=by: np.testing.assert_array_equal(moved, start * np.float32(by)),
                policy.params,
                starts[name],
            )
    assert held == [None] * 4
