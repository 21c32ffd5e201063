"""What a config makes of a step and of a run: questions, samples, sequences, micro-batches, tokens, gradings.

Where a number depends on what is sampled it is the most there can be, in one round of the game.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ml_collections import ConfigDict
from rich.table import Table

from codea1.config import trained_sequences
from codea1.game.methods import METHODS, CodeRewardSource
from codea1.learn.batch import RowShape


@dataclass(frozen=True)
class StepSizes:
    """One player in one training step."""

    roles: tuple[str, ...]  # that it plays
    prompts: int  # that it is asked
    samples: int  # that it draws
    generated_tokens: int  # if every sample is as long as may be
    sequences: int  # that train it
    mini_batches: int  # optimizer steps; 0 if it is frozen
    row_shapes: Sequence[RowShape]  # of micro-batches, shortest first
    micro_batches: int  # if every sequence takes a row of the longest
    trained_tokens: int  # prompts and responses, if every one is as long as may be

    @classmethod
    def of(cls, config: ConfigDict, name: str, row_shapes: Sequence[RowShape]) -> "StepSizes":
        """Those of policy `name`, in all its roles, with such micro-batches."""
        own, game = config[name], config.game
        solutions = config.questions_per_step * game.num_solutions
        sequences = trained_sequences(config, name)
        mini_batches = own.mini_batches if sequences else 0
        roles = METHODS[config.method].roles_of(name)
        prompts_of = {"code": config.questions_per_step, "test": solutions}
        samples_of = {"code": solutions, "test": solutions * game.num_suites}
        samples = sum(samples_of[role] for role in roles)
        return cls(
            roles=roles,
            prompts=sum(prompts_of[role] for role in roles),
            samples=samples,
            generated_tokens=samples * own.max_response_length,
            sequences=sequences,
            mini_batches=mini_batches,
            row_shapes=row_shapes,
            micro_batches=mini_batches * math.ceil(sequences / own.mini_batches / row_shapes[-1].rows),
            trained_tokens=sequences * (own.max_prompt_length + own.max_response_length),
        )


@dataclass(frozen=True)
class Gradings:
    """Runs of the sandbox in one training step, over all hosts, if none is remembered from before."""

    programs: int
    ground_truths: int

    @classmethod
    def of(cls, config: ConfigDict) -> "Gradings":
        """A solution is run on the book's tests and on those of its suites, or on fixed tests alone.

        The ground truth is run twice on the tests of each solution, to see that it agrees with itself.
        """
        solutions = config.questions_per_step * config.game.num_solutions
        if METHODS[config.method].code_reward is not CodeRewardSource.GENERATED_TESTS:
            return cls(programs=solutions, ground_truths=0)
        return cls(programs=2 * solutions, ground_truths=2 * solutions)


def batch_table(config: ConfigDict, questions: int, players: dict[str, StepSizes]) -> Table:
    """The numbers of a step and of the whole run for people; `questions` is how many there are to train on."""
    table = Table("in one step", *players, title="Batches", title_justify="left")
    for row in _rows(config, players):
        table.add_row(*row)
    epochs = config.steps / (questions // config.questions_per_step)
    steps = {name: f"{config.steps * sizes.mini_batches:,}" for name, sizes in players.items()}
    table.add_section()
    table.add_row(f"over {config.steps:,} steps ({epochs:.2f} epochs): optimizer steps", *steps.values())
    responses = {name: f"{config.steps * sizes.samples:,}" for name, sizes in players.items()}
    table.add_row(f"over {config.steps:,} steps: samples", *responses.values())
    return table


def _rows(config: ConfigDict, players: dict[str, StepSizes]) -> Iterator[tuple[str, ...]]:
    every = list(players.values())
    yield "questions", *(f"{config.questions_per_step:,}" for _ in every)
    yield "prompts", *(f"{sizes.prompts:,}" for sizes in every)
    what = {"code": "solutions", "test": "suites"}
    yield "samples", *(f"{sizes.samples:,} {' and '.join(what[role] for role in sizes.roles)}" for sizes in every)
    yield "tokens generated, at most", *(f"{sizes.generated_tokens:,}" for sizes in every)
    yield "sequences trained, at most", *(f"{sizes.sequences:,}" for sizes in every)
    yield "tokens trained, at most", *(f"{sizes.trained_tokens:,}" for sizes in every)
    yield "mini-batches", *(_mini_batches(sizes) for sizes in every)
    yield "micro-batches, at most", *(f"{sizes.micro_batches:,}" for sizes in every)
    shapes = [", ".join(f"{shape.rows} x {shape.length}" for shape in sizes.row_shapes) for sizes in every]
    yield "rows x tokens of one", *shapes


def _mini_batches(sizes: StepSizes) -> str:
    each = f" of {sizes.sequences // sizes.mini_batches:,}" if sizes.mini_batches else ""
    return f"{sizes.mini_batches}{each}"
