"""A run in a folder: it validates, evaluates, writes, saves and resumes around the steps of Algorithm 1."""

import contextlib
import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from codea1.config import Config
from codea1.evaluation.result_files import read_evaluation
from codea1.learn.update import float32_norm
from codea1.players.base import Start, base_checksums, require_base
from codea1.runs.book_files import BookSave
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.lock import require_lock
from codea1.runs.recorded import recorded
from codea1.runs.samples import rows
from codea1.runtime.errors import BadInput, StorageFailed
from codea1.runtime.futures import digest
from codea1.runtime.hosts import AgreedBadInput, Hosts
from codea1.runtime.phases import doing, progress
from codea1.runtime.signals import Stopped, StopRequest
from codea1.runtime.versions import machine, versions
from codea1.sandbox.host.pool import SandboxPool
from codea1.sharding import to_host
from codea1.storage.checksums import Checksum
from codea1.training.profile import ProfilerWindow
from codea1.training.record import Record, ShowReport
from codea1.training.revalidation import revalidate
from codea1.training.setup import Components
from codea1.training.soundness import Diverged, Soundness, not_finite_after, title
from codea1.training.step import Step
from codea1.training.stored_config import paths_of
from codea1.training.trainer import Metrics, Trainer
from codea1.training.validation import Best, Validation


@dataclasses.dataclass
class Position:
    """How far the run has come: what a checkpoint holds besides the players and the book."""

    step: int = -1  # the last whole one: the players and the book are as it left them
    row: Metrics | None = None  # the step's metrics, until they are complete and written
    soundness: Soundness = dataclasses.field(default_factory=Soundness)


class Run(Trainer):
    """A run on one host, from the step that its folder holds to the last. A context manager.

    When asked to stop, it abandons the current step and saves the last whole one, unless the step has begun to change
    the players and the book: then it completes the step.
    """

    def __init__(
        self,
        config: Config,
        parts: Components,
        sandbox: SandboxPool,
        folder: RunFolder,
        hosts: Hosts,
        stop: StopRequest | None = None,
        allow_previous_step: bool = False,
        allow_changed_model: bool = False,
    ):
        """Opens the run in `folder`; see `codea1.training.guards.guarded`."""
        super().__init__(config, parts, sandbox, hosts)
        self._validation = Validation(config.validation, parts, self._grader, hosts)
        self._folder = folder
        self._allow_previous_step, self._allow_changed_model = allow_previous_step, allow_changed_model
        self._position = Position()
        self._cursor: dict[str, Checksum] = {}  # of the record, when the step that the run resumes from was saved
        self._step: Step | None = None  # that is under way
        self._saved = -1  # step
        self._stop = stop or StopRequest()
        self._notes: list[str] = []  # on how the run was resumed, for people
        self._profile = ProfilerWindow(folder, config.profile.first_step, config.steps, hosts.index)
        self._checkpoints = Checkpoints(
            folder.checkpoints,
            keep_last=config.checkpoint.keep_last,
            keep_best=config.checkpoint.keep_best,
        )
        self._origins: dict[str, Any] = {}  # what the run is made from, as checkpoints hold it; see `_resume`

    def __enter__(self) -> "Run":
        """Restores the last complete checkpoint. Raises BadInput and StorageFailed where that cannot be."""
        with doing("storage"):
            self._resume()  # this looks, and changes nothing
            with self._hosts.agreed():
                self._record = Record(
                    self._folder,
                    self._config,
                    done=self._position.step,
                    last_row=self._position.step - int(self._position.row is not None),  # that row comes later
                    cursor=self._cursor,
                    is_main=self._hosts.is_main,
                )
                if self._hosts.is_main:
                    begins = {"made_with": machine(), "starts": self._origins["starts"]}
                    self._folder.update(paths_of(self._config), begins if self._position.step < 0 else None)
            done = self._position.step if self._position.step >= 0 else None
            self._notes += self._checkpoints.continue_from(done, self._folder.set_aside)
        for player in self._policies.values():
            player.call_between_chunks(self._safe_point)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        """Saves what can be saved: the last whole step, where the players still hold it and all hosts end together."""
        with self._record:
            # Bad input that one host alone met does not end all hosts at the same point.
            together = self._hosts.count == 1 or isinstance(error, AgreedBadInput)
            can_save = isinstance(error, BadInput) and not isinstance(error, Diverged) and self._is_whole and together
            if isinstance(error, Stopped) or can_save:
                self._save_last_step()
            elif isinstance(error, BadInput | StorageFailed):
                self._checkpoints.settle()
        if error is None:
            self._checkpoints.close()

    def prepare(self) -> None:
        """Compiles, evaluates before the first step, and completes the last whole step where that was cut off."""
        done = self._position.step
        self._announce(done)
        for name, purpose, compiled in self._compile(learning=done < self._config.steps):
            seconds = sum(function.seconds for function in compiled)
            self._record.progress.print(f"{name}: compiled {len(compiled)} functions of {purpose} in {seconds:.1f} s")
            for function in sorted(compiled, key=lambda function: -function.seconds)[:3]:
                self._record.progress.print(f"  {function.seconds:6.1f} s  {function.name}")
        if done < 0:
            self._evaluate_once("before", step=0)
            self._record.write_metrics(0, row := self._validate(0))
            self._record.progress.update(0, row)
        elif self._position.row is not None:
            self._finish_step()

    def steps(self) -> Iterator[int]:
        """Yields the numbers of the steps that are left."""
        yield from range(max(self._position.step, 0) + 1, self._config.steps + 1)

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[Step]:
        """Begins a step; at its end, validates where that is due, and writes what the step left behind."""
        self._safe_point()
        self._stop.can_exit_now = False
        with doing(f"step {number}"):
            with self._profile.step(number), super().step(number) as step:
                self._step = step
                yield step
                if self._hosts.is_main:
                    transcripts = {role: player.tokenizer.transcript for role, player in self._parts.players.items()}
                    with doing("storage"):
                        self._record.write_samples(number, rows(step.round, transcripts))
            gaps = {player.name: step.metrics.get(f"{player.name}/sampler_kl") for player in self.learners}
            soundness = self._position.soundness.after(number, step.skips_all, gaps, self._config.max_sampler_kl)
            self._position = Position(number, step.metrics, soundness)
            self._step = None
            self._finish_step()

    def conclude(self) -> None:
        """Waits for the last checkpoint and evaluates; a signal ends the process at once from here on."""
        with doing("storage"):
            self._checkpoints.wait()
        self._stop.can_exit_now = True
        self._evaluate_once("after", step=self._config.steps)
        best = self._validation.best.step if self._validation.best.step > 0 else "none has a score"
        self._record.progress.print(f"best step on the validation questions: {best}")

    def report(self, show_report: ShowReport) -> None:
        """Writes and shows the report, by `show_report`, and says what there is to open; comes after `conclude`."""
        self._record.report(show_report)
        self._record.progress.print(f"{self._folder.page}, in a browser, has the curves and samples to leaf through")
        if "test" in self._parts.players:
            tells = "tells of programs that were paid and wrong, and of the asserts that broke them"
            self._record.progress.print(f"codea1 explain {shlex.quote(str(self._folder.path))} --duels {tells}")

    @property
    def _is_whole(self) -> bool:
        """Whether the players and the book are as the last whole step left them."""
        return self._step is None or not self._step.has_changed_state

    def _safe_point(self) -> None:
        progress()
        if self._is_whole:
            self._stop.safe_point(self._hosts)

    def _finish_step(self) -> None:
        """Validates, writes and saves the last whole step: all that its players suffice for, also after a resume."""
        step, row = self._position.step, self._position.row
        assert row is not None
        breakdown = self._position.soundness.breakdown(self._config.max_sampler_kl)
        if not breakdown and (step == self._config.steps or step % self._config.validation.every == 0):
            row = row | self._validate(step)
        with doing("storage"):
            if self._hosts.is_main:
                require_lock(self._folder)
            self._record.write_metrics(step, row)
            self._position.row = None
            if breakdown:
                raise self._diverged(breakdown)
            self._save_if_due(step, row)
        while self._checkpoints.notes:
            self._record.progress.print(self._checkpoints.notes.pop(0))
        self._record.progress.update(step, row)

    def _validate(self, step: int) -> Metrics:
        self._record.progress.note("validating")
        means, note = self._validation.validate(step)
        if note:
            self._record.progress.print(note)
        return means

    def _evaluate_once(self, name: str, step: int) -> None:
        if self._hosts.of_main(lambda: read_evaluation(self._folder, name) is not None):
            return
        self._record.progress.note(f"evaluating {name} training, on the test split")
        self._record.write_evaluation(name, self._validation.evaluate(step))

    def _save_if_due(self, step: int, row: Metrics) -> None:
        # A new best step is saved between regular checkpoints, too.
        due = step % self._config.checkpoint.every == 0 or step in (self._config.steps, self._validation.best.step)
        score = row.get("validation/score")
        if due and self._saved < step:
            self._save(score)
        elif due and score is not None:  # a stop saved the step before its validation ended
            self._checkpoints.set_score(step, score)
        else:
            self._checkpoints.check()

    def _save_last_step(self) -> None:
        with doing("storage"):
            if self._saved < self._position.step:
                self._save(score=None)
            self._checkpoints.close()
        after = f"after step {self._saved}, which is saved" if self._saved > 0 else "before the first step"
        self._record.progress.print(f"stopped {after}: the same command goes on from there")

    def _save(self, score: float | None) -> None:
        arrays = {name: state for player in self._policies.values() for name, state in player.states.items()}
        if names := _not_finite(arrays):
            self._checkpoints.settle()
            raise self._diverged(not_finite_after(self._position.step, names))
        row = self._position.row
        soundness = self._position.soundness
        if soundness.learns_well:  # this step is the last sound one in the checkpoint that is written here
            soundness.sound = self._position.step
        state = {
            "best": dataclasses.asdict(self._validation.best),
            "batches": self._batches,
            "row": None if row is None else {name: np.asarray(value).item() for name, value in row.items()},
            "record": self._record.cursor(),
            **dataclasses.asdict(soundness),
            **self._origins,
        }
        book = BookSave(self._book.pages(), self._book.shards)
        self._checkpoints.save(self._position.step, arrays, state, score, book)
        self._saved = self._position.step
        self._checkpoints.sound = soundness.sound

    def _diverged(self, breakdown: str) -> Diverged:
        """Returns what ends the run on all hosts, where a learner broke down."""
        sound, saved = self._position.soundness.sound, self._saved
        sentence = (
            f"{breakdown} in {self._folder.metrics}. The same command goes on "
            + (f"after step {saved}; " if saved > 0 else "from the start; ")
            + (f"the last sound step is {sound}." if sound > 0 else "no sound step was saved.")
        )
        return Diverged(sentence if self._hosts.is_main else "")

    def _resume(self) -> None:
        """Restores the last complete checkpoint, where there is one."""
        bases = self._hosts.of_main(lambda: base_checksums(self._config, [*self._policies], references=True))
        sets = {"train": self._parts.train, **self._parts.held_out}
        questions = {name: digest(repr(asked)).hex() for name, asked in sets.items()}
        players = {name: Start(self._config.policy(name).model) for name in self._policies}
        digests = self._hosts.of_main(lambda: {name: start.digests() for name, start in players.items()})
        step, damages = self._hosts.of_main(lambda: self._checkpoints.latest(self._allow_previous_step))
        self._notes += [f"given up: {damage}" for damage in damages]
        allowed, starts = self._allow_changed_model, self._folder.starts
        changes: list[str] = []  # of starts, which somebody allowed
        for name in self._policies:
            check = partial(require_base, self._config, name, self._checkpoints, step, True, allowed, starts)
            changes += self._hosts.of_main(check)
        self._notes += changes
        self._origins = {"bases": bases, "starts": digests, "changes": changes, "questions": questions}
        if step is None:
            return
        arrays, state = self._checkpoints.restore(step, self._parts.release())
        if names := _not_finite(arrays):
            where, which = self._folder.checkpoints / str(step), " and ".join(map(title, names))
            sentence = f"{which} in {where} is not finite: move that folder away to go on from the step before."
            raise AgreedBadInput(sentence if self._hosts.is_main else "")
        for player in self._policies.values():
            player.restore(arrays)
        with self._hosts.agreed():  # this host's shards of the book, whatever hosts wrote them
            pages = self._checkpoints.restore_book(step, self._book.shards)
            pages, notes = revalidate(pages, self._parts.train, self._grader)
        self._book.load(pages)
        self._notes += [note for part in self._hosts.exchange(notes) for note in part]
        if state["best"]["step"] > 0:
            self._validation.best = Best(**state["best"])
        soundness = Soundness(state["skipped"], state["astray"], state["sound"])
        self._position = Position(step, state["row"], soundness)
        self._batches = state["batches"]
        for name, now in questions.items():
            if state["questions"][name] != now:
                where = getattr(self._config.data, name).source
                self._notes.append(f"config.data.{name}: {where} has other questions than when step {step} was saved")
        self._origins["changes"] = state.get("changes", []) + changes
        self._saved, self._checkpoints.sound = step, soundness.sound
        self._cursor = recorded(state)

    def _note(self, text: str) -> None:
        self._record.progress.note(text)

    def _announce(self, done: int) -> None:
        parts = self._parts
        lines = [f"continuing {self._folder.path} after step {done}"] if done >= 0 else []
        lines += self._notes
        there, here = self._folder.made_with, versions() | machine()
        if changed := [name for name in there if there[name] != here.get(name)]:
            differences = "; ".join(f"{name} {there[name]}, here {here.get(name)}" for name in changed)
            rounding = ": sums are rounded in another way, so samples may differ"
            lines.append(f"it was made with {differences}{rounding if machine().keys() & {*changed} else ''}")
        lines += [parts.counted, self._sandbox.isolation_note]
        lines += [f"dropped: {question.id}" for question in parts.dropped]
        lines += [f"without tests: {question.id}" for question in parts.untested]
        for line in lines:
            self._record.progress.print(line)


def _not_finite(states: Mapping[str, Any]) -> list[str]:
    """Returns the names of those states, moments included, whose norm is not finite. A collective."""
    return [name for name, norm in to_host(_norms(states)).items() if not np.isfinite(norm)]


_norms = jax.jit(lambda states: {name: float32_norm(state) for name, state in states.items()})
