"""A run rehearsed: everything that training does, once, on what is loaded, and nothing kept.

The sandbox judges programs whose verdict is known, everything is compiled, and one step is played on the first batch of
questions. What the players learn ends with the process.
"""

import contextlib
import sys
from collections.abc import Iterator, Sequence

import jax
from ml_collections import ConfigDict
from rich.console import Console
from rich.table import Table

from codea1.players.player import Player
from codea1.runtime.compilations import Compilation
from codea1.runtime.errors import BadInput
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.sandbox.doctor import misjudged
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.batch_table import Gradings, StepSizes, batch_table
from codea1.training.profile import GIB, limit_bytes, memory_metrics
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
        self._sandbox = sandbox
        self._hosts = hosts
        width = None if sys.stdout.isatty() else 120
        self._console = Console(quiet=not hosts.is_main, highlight=False, width=width)

    @property
    def learners(self) -> list[Player]:
        """The players that learn, each once, whatever it plays."""
        return [player for player in self._policies.values() if player.learns]

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
        peak, limit = memory_metrics(self._hosts), limit_bytes()
        if peak:
            of = f" of {limit / GIB:.2f} GiB" if limit else ""
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
                    compiled: Sequence[Compilation] = warm_up()
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
