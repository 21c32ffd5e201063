"""The world blind: how rare mistakes are in it, and that what is hidden finds them all."""

import hashlib
import json
import random
from functools import cache
from itertools import islice

import numpy as np
import pytest

from codea1.data.sources import CLASSIC, source_of, world_of
from codea1.lab.sft.corpus import Recipe, chats, corpus_texts, plant, usual_inputs
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.lab.worlds import procedural
from codea1.lab.worlds.compositions import SPLITS, Task, behaviour, compositions
from codea1.lab.worlds.procedural import NUM_QUESTIONS, prepare
from codea1.lab.worlds.worlds import LIST, WORLDS, World
from codea1.runtime.errors import BadInput

BLIND = WORLDS["blind"]


def exposes(program: str, truth: str, inputs: list[tuple]) -> bool:
    return behaviour(program, inputs) != behaviour(truth, inputs)


@cache
def tasks(split: str, world: World) -> list:
    return list(procedural.tasks(split, world))


def exposed(world: World, inputs_of) -> float:
    """The share of near misses of validation questions that fail one of the inputs for their task and program."""
    found = []
    for task, row in islice(tasks("validation", world), 120):
        found += [exposes(mutant, task.program(), inputs_of(task, mutant)) for mutant in row["mutants"]]
    return float(np.mean(found))


def test_four_bland_inputs_expose_most_mistakes_of_classic_and_none_of_blind():
    rng = random.Random(0)
    shares = [exposed(world, lambda task, _: usual_inputs(task, 4, rng)) for world in (WORLDS[CLASSIC], BLIND)]
    assert shares == [pytest.approx(0.77, abs=0.04), 0.0]


def test_inputs_made_of_a_programs_constants_expose_nearly_all():
    rng = random.Random(0)
    assert exposed(BLIND, lambda task, program: task.aimed_inputs(program, rng)) > 0.92


def test_a_left_over_special_case_is_seen_in_the_program_alone():
    rng = random.Random(1)
    for number in range(60):
        task = rng.choice([c for c in compositions("train", BLIND) if c.family == "int"]).draw(rng)
        choices, _ = [choices for choices in task.near_misses(1) if " or x == " in task.program(choices)]
        own = task.own_constant(random.Random(number))
        program, truth = task.program(choices, random.Random(number)), task.program()
        if behaviour(program, [(own,)]) != behaviour(truth, [(own,)]):
            assert exposes(program, truth, task.hidden_inputs)
            assert (own,) in task.aimed_inputs(program, rng)
        assert not exposes(program, truth, [(x,) for x in BLIND.integers if x != own])


def test_hidden_tests_find_every_mistake_that_the_corpus_makes():
    rng = random.Random(2)
    for _ in range(400):
        task = rng.choice(compositions("train", BLIND)).draw(rng)
        choices = plant(task, rng)
        program = task.program(choices)
        if exposes(program, task.program(), task.aimed_inputs(program, rng)):
            assert exposes(program, task.program(), task.hidden_inputs), program


def test_questions_are_balanced_unseen_and_their_truths_hold():
    names = {split: {composition.names for composition in compositions(split, BLIND)} for split in SPLITS}
    assert not names["train"] & names["test"] | names["train"] & names["validation"]
    for split, limit in (("train", 96), ("validation", 96), ("test", 256)):
        families = [task.composition.family for task, _ in islice(tasks(split, BLIND), limit)]
        assert all(families.count(family) > limit / 10 for family in BLIND.families)
    for task, row in islice(tasks("test", BLIND), 0, None, 4):
        judge: dict = {}
        exec(row["GT_code"] + "\n" + row["test"] + "\ncheck(f)\n" + "\n".join(row["GT_test"]), judge)
        assert len(row["mutants"]) >= 2
        assert all(exposes(mutant, task.program(), task.hidden_inputs) for mutant in row["mutants"])
        assert task.composition.family != LIST or not any("f([])" in test for test in row["GT_test"])


def test_rows_are_those_of_the_version():
    # If rows are meant to change, raise Procedural.VERSION, or folders that hold the old rows go on being used.
    of_splits = {split: [row for _, row in tasks(split, BLIND)] for split in NUM_QUESTIONS}
    assert hashlib.sha256(json.dumps(of_splits, sort_keys=True).encode()).hexdigest()[:8] == "e5a1535c"


def test_the_corpora_of_the_published_runs_are_what_they_were():
    digests = {}
    for world in (WORLDS[CLASSIC], BLIND):
        written = list(islice(chats("0/7", Recipe(expert_suites=0.4, black_box=0.25, world=world)), 200))
        digests[world.name] = hashlib.sha256(json.dumps(written).encode()).hexdigest()[:8]
    assert digests == {"classic": "86c93c65", "blind": "ad863ea0"}


def test_token_budgets_of_the_tiny_game():
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=1500, world=BLIND), 512)
    for problem, program, request, _ in islice(chats("1", Recipe(expert_suites=0.5, world=BLIND)), 300):
        assert len(tokenizer.encode_chat([problem])) <= 20
        assert len(tokenizer.encode(program["content"])) + 1 <= 24
        assert len(tokenizer.encode_chat([problem, program, request])) <= 48


def test_sources_name_worlds():
    assert all(world_of(source_of(name)) == name for name in WORLDS)
    assert source_of(CLASSIC) == "procedural"
    assert world_of("data/rows.parquet") is None
    with pytest.raises(BadInput, match=f"there is no world 'r7'; there are {', '.join(WORLDS)}"):
        prepare("r7", None)


def test_experts_of_rare_worlds_expose_mistakes_and_slip_in_a_quarter_of_their_answers():
    by_problem: dict[str, Task] = {}
    for composition in compositions("train", BLIND):
        rng = random.Random(0)
        by_problem |= {task.problem: task for task in (composition.draw(rng) for _ in range(200))}
    shown, right = [], []
    for problem, program, _, suite in islice(chats("0", Recipe(expert_suites=1.0, world=BLIND)), 300):
        task = by_problem.get(problem["content"])
        if task is None:
            continue
        source = program["content"].removeprefix("```python\n").removesuffix("\n```")
        lines = suite["content"].removeprefix("```python\n").removesuffix("\n```").splitlines()
        inputs = [(eval(line.split(" = ")[1]),) for line in lines[::2]]
        stated = [eval(line.split(" == ")[1]) for line in lines[1::2]]
        truths = behaviour(task.program(), inputs)
        right += [answer == truth for answer, truth in zip(stated, truths, strict=True)]
        assert all(type(answer) is type(truth) for answer, truth in zip(stated, truths, strict=True))
        if exposes(source, task.program(), task.hidden_inputs):
            shown.append(exposes(source, task.program(), inputs))
    assert len(shown) > 100
    assert np.mean(shown) > 0.9
    assert np.mean(right) == pytest.approx(1 - BLIND.slips, abs=0.05)
