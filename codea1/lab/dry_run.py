"""A dry run: the sandbox is examined, everything is compiled, one step is played, and nothing is kept.

What the players learn ends with the process.
"""

import contextlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence

import jax
from rich.console import Console, Group

from codea1.config import Config
from codea1.game.methods import METHODS
from codea1.lab.report.tables import TextTable
from codea1.learn.batch import RowShape
from codea1.models.flops import GIB
from codea1.players.memory import device_memory
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.self_test import misjudged
from codea1.training.profile import memory_metrics
from codea1.training.setup import Components
from codea1.training.step import Step
from codea1.training.trainer import Metrics, Trainer

_COUNTED = ("gradings", "timeouts", "infra")  # of the sandbox
_SHOWN = (  # rows of the table; a player without the metric has an empty cell
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
    "sampler_kl",
    "sampler_log_prob_difference_max",
    "update_tflops_per_second",
    "update_mfu",
    "rollout_samples",
    "rollout_slot_use",
)


class DryRun(Trainer):
    """Plays one step, shows how it went on host 0, and keeps nothing."""

    def __init__(self, config: Config, parts: Components, sandbox: SandboxPool, hosts: Hosts) -> None:
        super().__init__(config, parts, sandbox, hosts)
        width = None if sys.stdout.isatty() else 120
        self._console = Console(quiet=not hosts.is_main, highlight=False, width=width)

    def prepare(self) -> None:
        """Shows devices and batches, examines the sandbox and compiles. Raises BadInput: it judges wrongly."""
        kinds = ", ".join(sorted({device.device_kind for device in jax.devices()}))
        mesh = next(iter(self._policies.values())).functions.mesh
        axes = " x ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
        self._note(f"{jax.device_count()} devices ({kinds}) of {self._hosts.count} hosts, mesh {axes}")
        row_shapes = {name: player.functions.layout.shapes for name, player in self._policies.items()}
        self._console.print(batch_table(self._config, len(self._parts.train), row_shapes))
        self._note(self._parts.counted)
        with self._hosts.agreed():
            if wrong := misjudged(self._sandbox):
                raise BadInput(f"the sandbox judges programs wrongly: {'; '.join(wrong)}.")
        self._note(f"{self._sandbox.isolation_note} It judges the doctor's programs as it should.")
        compiled = [(name, function) for name, _, functions in self._compile() for function in functions]
        rows = [(f"{name}: {function.name}", f"{function.seconds:.1f}") for name, function in compiled]
        rows.append(("all", f"{sum(function.seconds for _, function in compiled):.1f}"))
        shared = "Players of one model share what fits both. What an earlier process compiled is only read again."
        self._console.print(TextTable(("function", "seconds"), rows).terminal("Compiled functions", shared))

    def steps(self) -> list[int]:
        """Returns the first step in which policies learn: with PPO, after the warm-up of the critics."""
        sections = [self._config.policy(player.name) for player in self.learners]
        return [1 + max((section.critic.warmup_steps for section in sections if section.advantage == "gae"), default=0)]

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Step]:
        """Begins the step, on an empty Mistake Book, and shows its metrics."""
        self._note("playing one round and learning from it")
        with super().step(number) as step:
            yield step
        self._console.print(self._metrics_table(step.metrics))
        seconds = ", ".join(f"{name} {spent:.1f}" for name, spent in step.watch.seconds.items())
        self._note(f"seconds: {seconds}")
        counts = ", ".join(f"{name} {step.metrics[f'sandbox/{name}']:,.0f}" for name in _COUNTED)
        self._note(f"sandbox: {counts}")

    def conclude(self) -> None:
        """Shows how much memory was in use."""
        peak, limit = memory_metrics(self._hosts), device_memory()
        if peak:
            of = f" of {limit / GIB:.2f} GiB" if limit else ""
            self._note(f"most device memory in use: {peak['perf/hbm_peak_gib']:.2f}{of}")
        else:
            self._note("the devices do not tell how much memory was in use")
        self._note("dry run done: nothing was written.")

    def _note(self, text: str) -> None:
        self._console.print(text)

    def _metrics_table(self, metrics: Metrics) -> Group:
        rows = []
        for key in _SHOWN:
            values = [metrics.get(f"{name}/{key}") for name in self._parts.players]
            if any(value is not None for value in values):
                rows.append([key, *("" if value is None else f"{value:.4g}" for value in values)])
        return TextTable(["metric", *self._parts.players], rows).terminal("One step")


def batch_table(config: Config, questions: int, row_shapes: Mapping[str, Sequence[RowShape]]) -> Group:
    """Returns what each player does in one step and in the whole run, for people.

    Where a number depends on what is sampled it is the most there can be, in one round of the game.

    Args:
      questions: how many there are to train on.
      row_shapes: of the micro-batches of each player, shortest first.
    """
    columns = [_batches(config, questions, name, shapes) for name, shapes in row_shapes.items()]
    rows = [[title, *(column[title] for column in columns)] for title in columns[0]]
    return TextTable(["in one step", *row_shapes], rows).terminal("Batches")


def _batches(config: Config, questions: int, name: str, row_shapes: Sequence[RowShape]) -> dict[str, str]:
    """Returns the column of one player, which has the numbers of all roles that it plays."""
    section, roles = config.policy(name), METHODS[config.method].roles_of(name)
    solutions = config.questions_per_step * config.game.num_solutions
    prompts_of = {"code": config.questions_per_step, "test": solutions}
    samples_of = {"code": solutions, "test": solutions * config.game.num_suites}
    outputs = " and ".join({"code": "solutions", "test": "suites"}[role] for role in roles)
    samples = sum(samples_of[role] for role in roles)
    sequences = config.trained_sequences(name)  # 0 if it is frozen
    mini_batches = section.mini_batches if sequences else 0
    sequences_of_one = sequences // section.mini_batches
    longest_rows = math.ceil(sequences_of_one / row_shapes[-1].rows)  # if every sequence takes a row of the longest
    run, epochs = f"over {config.steps:,} steps", config.steps / (questions // config.questions_per_step)
    return {
        "questions": f"{config.questions_per_step:,}",
        "prompts": f"{sum(prompts_of[role] for role in roles):,}",
        "samples": f"{samples:,} {outputs}",
        "tokens generated, at most": f"{samples * section.max_response_length:,}",
        "sequences trained, at most": f"{sequences:,}",
        "tokens trained, at most": f"{sequences * (section.max_prompt_length + section.max_response_length):,}",
        "mini-batches": f"{mini_batches} of {sequences_of_one:,}" if mini_batches else "0",
        "micro-batches, at most": f"{mini_batches * longest_rows:,}",
        "rows x tokens of one": ", ".join(f"{shape.rows} x {shape.length}" for shape in row_shapes),
        f"{run} ({epochs:.2f} epochs): optimizer steps": f"{config.steps * mini_batches:,}",
        f"{run}: samples": f"{config.steps * samples:,}",
    }
