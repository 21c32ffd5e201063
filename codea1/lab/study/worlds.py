"""What each world is, measured without training: how often inputs of each kind expose a near miss."""

import ast
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, product

import numpy as np

from codea1.lab.report.tables import TextTable, percents
from codea1.lab.sft.corpus import expert_inputs, planted_program, usual_inputs
from codea1.lab.worlds.compositions import Composition, Task, behaviour, compositions
from codea1.lab.worlds.procedural import tasks
from codea1.lab.worlds.worlds import WORLDS, World

QUESTIONS = 192  # of the validation split
DRAWS = 10  # of inputs for each near miss
PROGRAMS = 2000  # of the corpus
CONSTANTS = 4  # of a component that are tried where two compositions may be one function


@dataclass(frozen=True)
class WorldFacts:
    """Shares of near misses of validation questions that fail at least one of so many inputs, and of right programs."""

    one: float  # bland input
    four: float  # bland inputs
    golden: float  # the question's golden tests
    aimed: float  # four inputs made of the program's constants and their neighbours
    all_aimed: float  # all such inputs
    right_programs: float  # of the corpus, which both players are made from
    compositions: int  # in all splits
    stated: float  # four inputs made of the problem's constants and their neighbours
    expert: float  # all inputs that the corpus's expert would choose among, who knows the generator
    sixteen: float  # hidden inputs, drawn uniformly, one perhaps twice
    restated: int  # compositions of the test split that equal one of training up to constants,
    tested: int  # of so many


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
        right.append(not task.exposing(planted_program(task, rng)))
    return WorldFacts(
        one=exposed(lambda task, _: usual_inputs(task, 1, rng)),
        four=exposed(lambda task, _: usual_inputs(task, 4, rng)),
        golden=exposed(lambda task, _: golden[task.id], draws=1),
        aimed=exposed(lambda task, program: task.aimed_inputs(program, rng)[:4]),
        all_aimed=exposed(lambda task, program: task.aimed_inputs(program, rng), draws=1),
        right_programs=float(np.mean(right)),
        compositions=sum(len(compositions(split, world)) for split in ("train", "validation", "test")),
        stated=exposed(lambda task, _: task.aimed_inputs(task.problem, rng)[:4]),
        expert=exposed(lambda task, program: expert_inputs(task, program, rng), draws=1),
        sixteen=exposed(lambda task, _: rng.choices(task.hidden_inputs, k=16)),
        restated=len(compositions("test", world)) - len(unlike_training(world)),
        tested=len(compositions("test", world)),
    )


@cache
def unlike_training(world: World) -> frozenset[str]:
    """Returns the compositions of the test split that equal none of training, whatever the constants: family and names.

    Of each component the constants in the middle of its own are tried. Lists are those of one task's hidden tests.
    """
    drawn = (composition.draw(random.Random(0)) for composition in compositions("train", world))
    inputs = {task.composition.family: task.hidden_inputs for task in drawn}

    def functions(composition: Composition) -> set[int]:
        ranges = [k.constants[len(k.constants) // 2 - 2 :][:CONSTANTS] for k in composition.components]
        tasks = (Task(composition, (a, b, c)) for a, b, c in product(*ranges))
        programs = dict.fromkeys(task.program() for task in tasks)
        return {hash(repr(behaviour(program, inputs[composition.family]))) for program in programs}

    taught = set().union(*map(functions, compositions("train", world)))
    unlike = [each for each in compositions("test", world) if taught.isdisjoint(functions(each))]
    return frozenset("/".join([each.family, *each.names]) for each in unlike)


def _arguments(test: str) -> tuple:
    """Returns the arguments of a golden test, `assert f([1, 2]) == 3`."""
    match ast.parse(test).body:
        case [ast.Assert(test=ast.Compare(left=ast.Call(args=arguments)))]:
            return tuple(ast.literal_eval(argument) for argument in arguments)
    raise ValueError(f"not a golden test: {test}")


def worlds_table(names: Iterable[str]) -> str:
    """Returns what each world is, measured without training, in Markdown."""
    rows = []
    for name in names:
        facts = world_facts(WORLDS[name])
        bland = (facts.one, facts.four, facts.golden, facts.sixteen)
        aimed = (facts.stated, facts.aimed, facts.all_aimed, facts.expert, facts.right_programs)
        rows.append([name, str(facts.compositions), f"{facts.restated} of {facts.tested}", *percents((*bland, *aimed))])
    heads = (
        *("world", "compositions", "test ones restated", "one bland input", "four", "golden tests", "16 hidden"),
        *("four aimed at the problem", "four aimed", "all aimed", "expert", "right"),
    )
    return TextTable(heads, rows).markdown()
