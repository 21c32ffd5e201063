"""The universe of procedural functions: splits, identity, and that its programs are what they say."""

import random

import pytest

from codea1.lab.worlds.compositions import RAISED, SPLITS, Task, behaviour, compositions
from codea1.lab.worlds.worlds import CONDITIONS, FILTERS, MAPS, REDUCES

EVERYTHING = [composition for split in SPLITS for composition in compositions(split)]


def test_splits_share_no_composition_and_hold_them_all():
    assert len(set(EVERYTHING)) == len(EVERYTHING)
    assert len(EVERYTHING) == len(FILTERS) * len(MAPS) * len(REDUCES) + len(CONDITIONS) * len(MAPS) * (len(MAPS) - 1)
    for split, share in SPLITS.items():
        assert len(compositions(split)) / len(EVERYTHING) == pytest.approx(share, abs=0.02)


def test_every_component_is_in_train_in_every_place():
    seen = {(c.family, place, name) for c in compositions("train") for place, name in enumerate(c.names)}
    assert seen == {(c.family, place, name) for c in EVERYTHING for place, name in enumerate(c.names)}


def test_problem_and_id_tell_functions_apart():
    rng = random.Random(0)
    tasks = [composition.draw(rng) for composition in EVERYTHING for _ in range(3)]
    for name in ("id", "problem", "description"):
        programs: dict[str, str] = {}
        for task in tasks:
            assert programs.setdefault(getattr(task, name), task.program()) == task.program()


def test_truth_never_raises_and_inputs_are_left_alone():
    rng = random.Random(1)
    for composition in rng.sample(EVERYTHING, 400):
        task = composition.draw(rng)
        inputs = task.hidden_inputs
        assert RAISED not in behaviour(task.program(), inputs)
        assert inputs == Task(composition, task.constants).hidden_inputs
        assert len({repr(arguments) for arguments in inputs}) == len(inputs)
        assert 20 <= len(inputs) <= 40
