"""A run rehearsed: everything that training does, once, on what is loaded, and nothing kept.

The sandbox judges programs whose verdict is known, everything is compiled, and one step is played on the first batch of
questions. What the players learn ends with the process.
"""

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table

from codea1.config import trained_sequences
from codea1.game.methods import METHODS, CodeRewardSource
from codea1.learn.batch import RowShape
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.sandbox.doctor import misjudged
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.profile import memory_limit_gib, memory_metrics
from codea1.training.setup import Components, mistake_book
from codea1.training.step import Step

Metrics = dict[str, float]

_SHOWN = (  # of each player's metrics, those there are
    "reward",
    "train_sequences",
    "tokens",
    "padding_waste",
    "loss",
    "policy_loss",
    "critic_value_loss",
    "kl_ref",
    "entropy",
    "grad_norm",
    "skipped",
    "sampler_log_prob_difference_max",
    "update_tflops_per_second",
    "update_mfu",
    "rollout_samples",
    "rollout_slot_use",
)


class DryRun:
    """The loop of `codea1.train` with one step and no folder, as every host does it; one of them prints."""

    def __init__(self, config: ConfigDict, parts: Components, sandbox: SandboxPool, hosts: Hosts) -> None:
        self._config = config
        self._parts = parts
        self._players = parts.players
        self._policies = parts.policies
        self.learners = parts.learners
        self._sandbox = sandbox
        self._hosts = hosts
        width = None if sys.stdout.isatty() else 120
        self._console = Console(quiet=not hosts.is_main, highlight=False, width=width)

    def prepare(self) -> None:
        """Shows devices and batches, examines the sandbox and compiles. Raises BadInput: it judges wrongly."""
        self._show_devices()
        self._show_batches()
        self._examine_sandbox()
        self._compile()

    def steps(self) -> list[int]:
        """The first step in which policies learn: with PPO, after the warm-up of the critics."""
        own = [self._config[player.name] for player in self.learners]
        return [1 + max((each.critic.warmup_steps for each in own if each.advantage == "gae"), default=0)]

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Step]:
        """Begins the step, on an empty Mistake Book; its metrics are shown, and nothing is kept."""
        self._console.print("playing one round and learning from it")
        parts, grader = self._parts, Grader(self._sandbox)
        book = mistake_book(self._config, self._hosts)
        step = Step(number, parts.players, parts.rules, parts.feed, grader, book, self._hosts)
        yield step
        for name, player in self._policies.items():
            step.metrics |= {f"{name}/{key}": value for key, value in player.take_rollout_metrics().items()}
        self._console.print(self._metrics_table(step.metrics))
        seconds = ", ".join(f"{name} {spent:.1f}" for name, spent in step.watch.seconds.items())
        self._console.print(f"seconds: {seconds}")
        stats = self._hosts.exchange(grader.take_stats())
        counts = {name: sum(each[name] for each in stats) for name in ("gradings", "timeouts", "infra")}
        self._console.print("sandbox: " + ", ".join(f"{name} {count:,.0f}" for name, count in counts.items()))

    def conclude(self) -> None:
        """Shows how much memory was in use."""
        peak, limit = memory_metrics(self._hosts), memory_limit_gib()
        if peak:
            of = f" of {limit:.2f} GiB" if limit else ""
            self._console.print(f"most device memory in use: {peak['perf/hbm_peak_gib']:.2f}{of}")
        else:
            self._console.print("the devices do not tell how much memory was in use")
        self._console.print("dry run done: nothing was written.")

    def _show_devices(self) -> None:
        kinds = ", ".join(sorted({device.device_kind for device in jax.devices()}))
        mesh = next(iter(self._policies.values())).mesh
        axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
        self._console.print(f"{jax.device_count()} devices ({kinds}) of {self._hosts.count} hosts, mesh {axes}")

    def _show_batches(self) -> None:
        config, parts = self._config, self._parts
        sizes = {name: StepSizes.of(config, name, player.row_shapes) for name, player in self._policies.items()}
        self._console.print(batch_table(config, len(parts.train), sizes))
        gradings = Gradings.of(config)
        self._console.print(
            f"sandbox gradings in one step, at most: {gradings.programs:,} of programs and "
            f"{gradings.ground_truths:,} of ground truths, over {self._hosts.count} hosts"
        )
        self._console.print(parts.counted)
        if parts.untested:
            self._console.print(f"{len(parts.untested)} more training questions have no tests and are left out")

    def _examine_sandbox(self) -> None:
        with self._hosts.agreed():
            wrong = misjudged(self._sandbox)
            if wrong:
                raise BadInput(f"the sandbox judges programs wrongly: {'; '.join(wrong)}.")
        self._console.print(f"{self._sandbox.isolation_note} It judges the doctor's programs as it should.")

    def _compile(self) -> None:
        shared = "Players of one model share what fits both. What an earlier process compiled is only read again."
        table = Table("compiled", "seconds", title="Programs", title_justify="left", caption=shared)
        total = 0.0
        for name, player in self._policies.items():
            for what, warm_up in {"generation": player.warm_up, "learning": player.warm_up_learning}.items():
                self._console.print(f"compiling the {what} of the {name} player")
                with doing("compile"):
                    compiled = warm_up()
                total += sum(each.seconds for each in compiled)
                for each in compiled:
                    table.add_row(f"{name}: {each.name}", f"{each.seconds:.1f}")
        table.add_section()
        table.add_row("all", f"{total:.1f}")
        self._console.print(table)

    def _metrics_table(self, metrics: Metrics) -> Table:
        table = Table("metric", *self._players, title="One step", title_justify="left")
        for key in _SHOWN:
            values = [metrics.get(f"{name}/{key}") for name in self._players]
            if any(value is not None for value in values):
                table.add_row(key, *("" if value is None else f"{value:.4g}" for value in values))
        return table


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
