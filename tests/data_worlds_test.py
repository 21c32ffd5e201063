"""The ladder of worlds: how rare mistakes are in each, and that what is hidden finds them all."""

import hashlib
import json
import random
from functools import cache
from itertools import islice

import numpy as np
import pytest

from codea1.data.sources import CLASSIC, source_of, world_of
from codea1.lab.sft.corpus import Recipe, chats, corpus_texts, expert_inputs, plant, usual_inputs
from codea1.lab.sft.tokenizer import make_tokenizer
from codea1.lab.study.worlds import unlike_training
from codea1.lab.worlds import procedural
from codea1.lab.worlds.compositions import SPLITS, Task, behaviour, compiled, compositions
from codea1.lab.worlds.procedural import NUM_QUESTIONS, prepare
from codea1.lab.worlds.worlds import LIST, WORLDS, World
from codea1.runtime.errors import BadInput

DIAL = [world for world in WORLDS.values() if world.searched]
RARE = [world for name, world in WORLDS.items() if name != CLASSIC and world not in DIAL]
each_rare_world = pytest.mark.parametrize("world", RARE, ids=lambda world: world.name)
each_of_the_dial = pytest.mark.parametrize("world", DIAL, ids=lambda world: world.name)


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


def test_four_bland_inputs_expose_less_from_world_to_world():
    rng = random.Random(0)
    shares = [exposed(world, lambda task, _: usual_inputs(task, 4, rng)) for world in (WORLDS[CLASSIC], *RARE)]
    np.testing.assert_allclose(shares, [0.77, 0.54, 0.32, 0.19, 0.07, 0.0], atol=0.04)
    assert shares[-1] == 0


@each_rare_world
def test_inputs_made_of_a_programs_constants_expose_nearly_all(world):
    rng = random.Random(0)
    assert exposed(world, lambda task, program: task.aimed_inputs(program, rng)) > 0.92


@each_rare_world
def test_a_left_over_special_case_is_seen_in_the_program_alone(world):
    rng = random.Random(1)
    for _ in range(60):
        task = rng.choice([c for c in compositions("train", world) if c.family == "int"]).draw(rng)
        choices, _ = [choices for choices in task.near_misses(1) if task.has_own_constant(choices)]
        own = task.own_constant(choices, rng)
        program, truth = task.program(choices, own), task.program()
        if behaviour(program, [(own,)]) != behaviour(truth, [(own,)]):
            assert exposes(program, truth, task.hidden_inputs)
            assert (own,) in task.aimed_inputs(program, rng)
        assert not exposes(program, truth, [(x,) for x in world.integers if x != own])


@each_rare_world
def test_hidden_tests_find_every_mistake_that_the_corpus_makes(world):
    rng = random.Random(2)
    for _ in range(400):
        task = rng.choice(compositions("train", world)).draw(rng)
        choices = plant(task, rng)
        program = task.program(choices)
        if exposes(program, task.program(), task.aimed_inputs(program, rng)):
            assert exposes(program, task.program(), task.hidden_inputs), program


@each_rare_world
def test_questions_are_balanced_unseen_and_their_truths_hold(world):
    names = {split: {composition.names for composition in compositions(split, world)} for split in SPLITS}
    assert not names["train"] & names["test"] | names["train"] & names["validation"]
    for split, limit in (("train", 96), ("validation", 96), ("test", 256)):
        families = [task.composition.family for task, _ in islice(tasks(split, world), limit)]
        assert all(families.count(family) > limit / 10 for family in world.families)
    for task, row in islice(tasks("test", world), 0, None, 4):
        judge: dict = {}
        exec(row["GT_code"] + "\n" + row["test"] + "\ncheck(f)\n" + "\n".join(row["GT_test"]), judge)
        assert len(row["mutants"]) >= 2
        assert all(exposes(mutant, task.program(), task.hidden_inputs) for mutant in row["mutants"])
        assert task.composition.family != LIST or not any("f([])" in test for test in row["GT_test"])


def test_rows_are_those_of_the_version():
    # If rows are meant to change, raise Procedural.VERSION, or folders that hold the old rows go on being used.
    digests = {}
    for world in (*RARE, *DIAL):
        # A thousand inputs make a row of the dial slow to write.
        splits = NUM_QUESTIONS if world in RARE else ("validation", "test")
        of_world = {split: [row for _, row in tasks(split, world)] for split in splits}
        digests[world.name] = hashlib.sha256(json.dumps(of_world, sort_keys=True).encode()).hexdigest()[:8]
    assert digests == {
        **{"r8": "c91d7636", "r16": "d3eabe22", "r32": "b6f1cdc6", "r100": "c2557248", "blind": "e5a1535c"},
        **{"stated": "04c00bba", "left": "3a1e9be7", "met": "728e6e38", "shifted": "24ab8df3", "neither": "ddd811dc"},
    }


def test_the_corpora_of_the_published_runs_are_what_they_were():
    digests = {}
    for world in (WORLDS[CLASSIC], *RARE):
        written = list(islice(chats("0/7", Recipe(expert_suites=0.4, black_box=0.25, world=world)), 200))
        digests[world.name] = hashlib.sha256(json.dumps(written).encode()).hexdigest()[:8]
    assert digests == {
        **{"classic": "86c93c65", "r8": "8e1118aa", "r16": "0d15ca02", "r32": "baf4a63f", "r100": "71f21127"},
        "blind": "ad863ea0",
    }


# Of near misses: which fail an input made of the problem's constants and their neighbours, or of the program's.
@pytest.mark.parametrize(
    ("name", "by_the_problem", "by_the_program"),
    [("stated", 1, 1), ("left", 0, 1), ("met", 0, 0), ("shifted", 0, 0), ("neither", 0, 0)],
)
def test_the_dial_says_where_a_rule_must_look(name, by_the_problem, by_the_program):
    rng, world = random.Random(0), WORLDS[name]
    problem = exposed(world, lambda task, _: task.aimed_inputs(task.problem, rng))
    program = exposed(world, lambda task, mutant: task.aimed_inputs(mutant, rng))
    assert (problem, program) == pytest.approx((by_the_problem, by_the_program), abs=0.01)
    assert exposed(world, lambda task, mutant: expert_inputs(task, mutant, rng)[:1]) == 1
    assert exposed(world, lambda task, _: [(x,) for x in world.integers]) == 0
    assert exposed(world, lambda task, _: rng.sample(task.hidden_inputs, 16)) < 0.04


@each_of_the_dial
def test_hidden_tests_of_the_dial_find_every_mistake_and_pass_the_truth(world):
    rng = random.Random(3)
    for task, row in islice(tasks("test", world), 60):
        judge: dict = {}
        exec(row["test"], judge)
        judge["check"](compiled(row["GT_code"]))
        assert len(row["mutants"]) >= 2
        for program in (*row["mutants"], *(task.program((i, 0, 0), own(task, i, rng)) for i in (1, 2))):
            assert 1 <= len(task.exposing(program)) <= 3
            with pytest.raises(AssertionError):
                judge["check"](compiled(program))


def own(task: Task, choice: int, rng: random.Random) -> int | None:
    choices = (choice, 0, 0)
    return task.own_constant(choices, rng) if task.has_own_constant(choices) else None


def test_aiming_in_the_dial_needs_no_borrow_and_the_program_keeps_to_itself_what_the_problem_does_not_say():
    rng = random.Random(4)
    for _ in range(200):
        task = rng.choice(compositions("train", WORLDS["shifted"])).draw(rng)
        choices = (rng.randint(1, 8), 0, 0)
        constant = task.own_constant(choices, rng)
        ((x,),) = task.exposing(task.program(choices, constant))
        assert x // 10 == constant // 10
        assert 2 <= constant - x <= 9
        assert str(constant) not in task.problem


@each_of_the_dial
def test_no_test_composition_of_the_dial_is_one_of_training_up_to_constants(world):
    assert len(unlike_training(world)) == len(compositions("test", world)) == 28


def test_in_the_blind_world_a_negation_with_swapped_branches_restates_training():
    unlike = unlike_training(WORLDS["blind"])
    assert len(compositions("test", WORLDS["blind"])) == 89
    assert len(unlike) == 29
    assert not any(name.startswith("int/") for name in unlike)


@each_of_the_dial
def test_token_budgets_of_the_dial(world):
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=1500, world=world), 512)
    fit = []
    for problem, program, request, suite in islice(chats("1", Recipe(expert_suites=0.5, world=world)), 300):
        assert len(tokenizer.encode_chat([problem])) <= 20
        assert len(tokenizer.encode(program["content"])) + 1 <= 28
        fit.append(len(tokenizer.encode_chat([problem, program, request])) <= 48)
        assert len(tokenizer.encode(suite["content"])) + 1 <= 68
    assert np.mean(fit) == 1


@each_rare_world
def test_token_budgets_of_the_tiny_game(world):
    tokenizer = make_tokenizer(corpus_texts(seed=0, num_chats=1500, world=world), 512)
    for problem, program, request, _ in islice(chats("1", Recipe(expert_suites=0.5, world=world)), 300):
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
    world = WORLDS["r32"]
    by_problem: dict[str, Task] = {}
    for composition in compositions("train", world):
        rng = random.Random(0)
        by_problem |= {task.problem: task for task in (composition.draw(rng) for _ in range(200))}
    shown, right = [], []
    for problem, program, _, suite in islice(chats("0", Recipe(expert_suites=1.0, world=world)), 300):
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
    assert np.mean(right) == pytest.approx(1 - world.slips, abs=0.05)
