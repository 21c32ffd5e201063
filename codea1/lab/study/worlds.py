"""What each world is, measured without training: how often inputs of each kind expose a near miss."""

import ast
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from codea1.lab.sft.corpus import planted_program, usual_inputs
from codea1.lab.worlds.compositions import Task, behaviour, compositions
from codea1.lab.worlds.procedural import tasks
from codea1.lab.worlds.worlds import World

QUESTIONS = 192  # of the validation split
DRAWS = 10  # of inputs for each near miss
PROGRAMS = 2000  # of the corpus


@dataclass(frozen=True)
class WorldFacts:
    """Shares of near misses of validation questions that fail at least one of so many inputs, and of right programs."""

    one: float  # bland input
    four: float  # bland inputs
    golden: float  # the question's golden tests
    aimed: float  # four inputs made of the program's constants
    all_aimed: float  # all such inputs
    right_programs: float  # of the corpus, which both players are made from
    compositions: int  # in all splits


def world_facts(world: World) -> WorldFacts:
    """Measures a world, with draws of its own that are always the same."""
    rng = random.Random(f"facts/{world.name}")
    rows = list(islice(tasks("validation", world), QUESTIONS))

    def exposed(inputs_of: Callable[[Task, str], Sequence[tuple]], draws: int = DRAWS) -> float:
        shares = []
        for task, row in rows:
            for mutant in row["mutants"]:
                for _ in range(draws):
                    inputs = inputs_of(task, mutant)
                    shares.append(behaviour(mutant, inputs) != behaviour(task.program(), inputs))
        return float(np.mean(shares))

    golden = {task.id: [_arguments(test) for test in row["GT_test"]] for task, row in rows}
    right = []
    for _ in range(PROGRAMS):
        task = rng.choice(compositions("train", world)).draw(rng)
        inputs = task.hidden_inputs()
        program = planted_program(task, rng)
        right.append(behaviour(program, inputs) == behaviour(task.program(), inputs))
    return WorldFacts(
        one=exposed(lambda task, _: usual_inputs(task, 1, rng)),
        four=exposed(lambda task, _: usual_inputs(task, 4, rng)),
        golden=exposed(lambda task, _: golden[task.id], draws=1),
        aimed=exposed(lambda task, program: task.aimed_inputs(program, rng)[:4]),
        all_aimed=exposed(lambda task, program: task.aimed_inputs(program, rng), draws=1),
        right_programs=float(np.mean(right)),
        compositions=sum(len(compositions(split, world)) for split in ("train", "validation", "test")),
    )


def _arguments(test: str) -> tuple:
    """Returns the arguments of a golden test, `assert f([1, 2]) == 3`."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(left=ast.Call(args=arguments)))]:
            return tuple(ast.literal_eval(argument) for argument in arguments)
    raise ValueError(f"not a golden test: {test}")
