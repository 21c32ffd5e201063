"""A trainer plays the steps of Algorithm 1 with assembled players, and writes nothing to disk; `Run` does."""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping

import jax

from codea1.config import Config
from codea1.runtime.compilations import CompileTime, compile_all
from codea1.runtime.hosts import Hosts
from codea1.runtime.phases import doing
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.training.profile import memory_metrics
from codea1.training.setup import Components, mistake_book
from codea1.training.step import Step

Metrics = dict[str, float]


class Trainer(ABC):
    """What `codea1.train` calls around and in the steps, on one host. All methods are collectives."""

    def __init__(self, config: Config, parts: Components, sandbox: SandboxPool, hosts: Hosts) -> None:
        self._config, self._parts, self._sandbox, self._hosts = config, parts, sandbox, hosts
        self._policies = parts.policies
        self.learners = [player for player in parts.policies.values() if player.learns]
        self._grader = Grader(sandbox)
        self._book = mistake_book(config.game, config.seed, hosts)  # this host's shards of it
        self._batches = 0  # of questions, asked in whole steps

    @abstractmethod
    def prepare(self) -> None:
        """Compiles, and does what comes before the first step."""

    @abstractmethod
    def steps(self) -> Iterable[int]:
        """Returns the numbers of the steps to play."""

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Step]:
        """Begins a step, and adds to its metrics, when it ends, all but those of validation."""
        self._grader.take_stats()  # drops what validation counted, as the next call does for the players
        for player in self._policies.values():
            player.functions.engine.take_statistics()
        parts, cpu_seconds = self._parts, time.process_time()
        step = Step(
            number, parts.players, parts.rules, parts.feed, self._grader, self._book, self._hosts, self._batches
        )
        with step.watch.phase("total"):
            yield step
        self._batches = step.batches
        step.metrics |= self._measured(step)
        step.metrics["perf/cpu_seconds"] = time.process_time() - cpu_seconds

    @abstractmethod
    def conclude(self) -> None:
        """Does what comes after the last step."""

    def _compile(self, *, learning: bool = True) -> Iterator[tuple[str, str, list[CompileTime]]]:
        """Compiles what generation calls, and what learning calls where `learning` is True and a player learns.

        Yields what it has compiled: the name of the player, "generation" or "learning", and the functions' times.
        """
        for name, player in self._policies.items():
            functions = {"generation": player.functions.generation}
            if learning and player.learns:
                functions["learning"] = player.functions.learning
            for purpose in functions:
                self._note(f"compiling the {purpose} of the {name} player")
                with doing("compile"):
                    compiled = compile_all(functions[purpose])
                yield name, purpose, compiled

    @abstractmethod
    def _note(self, text: str) -> None:
        """Shows what happens next."""

    def _measured(self, step: Step) -> Metrics:
        """Returns the times of a step, and the metrics of its rollout, sandbox and memory. A collective."""
        seconds = step.watch.seconds
        metrics = {f"time/{name}": spent for name, spent in seconds.items()}
        metrics |= self._sandbox_metrics(seconds)
        for name, player in self._policies.items():
            statistics = player.functions.engine.take_statistics()
            metrics |= {f"{name}/rollout_{key}": value for key, value in statistics.items()}
        samples = [solution.sample for solution in step.round.solutions] + [suite.sample for suite in step.round.suites]
        tokens = sum(len(sample.token_ids) for sample in samples)
        metrics["perf/tokens"] = float(tokens)
        metrics["perf/tokens_per_second"] = tokens / seconds["round"]
        metrics |= {"perf/processes": float(jax.process_count()), "perf/devices": float(jax.device_count())}
        return metrics | memory_metrics(self._hosts)

    def _sandbox_metrics(self, seconds: Mapping[str, float]) -> Metrics:
        """Returns counters summed over the hosts, this host's waiting as shares, and the weakest isolation.

        A collective.
        """
        measured = self._grader.take_stats(), self._sandbox.isolation.strength
        stats, strengths = zip(*self._hosts.exchange(measured), strict=True)
        metrics = {f"sandbox/{name}": float(sum(host[name] for host in stats)) for name in stats[0]}
        wait, busy = seconds.get("sandbox_wait", 0.0), metrics["sandbox/busy_seconds"] / len(stats)
        metrics["sandbox/share_of_step"] = wait / seconds["total"]
        metrics["sandbox/hidden_share"] = max(0.0, 1.0 - wait / max(busy, 1e-9))
        metrics["sandbox/isolation"] = float(min(strengths))
        return metrics
