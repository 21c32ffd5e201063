"""One evaluation on a benchmark: its specification, the folder that keeps what is done, and what is published.

Programs (`programs`), choices among them (`best_of_n`) and suites (`suites`) go the same way: questions make prompts;
what the folder does not hold yet is sampled and judged, and kept there, so that an evaluation that was cut off goes on;
then all of it is scored and published.
"""

import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from rich.console import Console
from rich.progress import Progress, TextColumn

from codea1.data.rows import Row
from codea1.evaluation.result_files import PerQuestion, summary, write_evaluation
from codea1.game.prompts import DEFAULT, PromptTemplates
from codea1.lab.benchmarks.benchmarks import SUITE_BENCHMARKS, EvaluationSpec
from codea1.lab.benchmarks.policies import lengths_of, policy_of_folder, policy_of_run
from codea1.lab.report.tables import evaluation_table
from codea1.players.base import Start
from codea1.players.dtype import fastest_dtype
from codea1.players.policy import Policy
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.lock import opened
from codea1.runtime.errors import BadInput, say
from codea1.runtime.hosts import Hosts
from codea1.runtime.versions import versions
from codea1.sandbox.host.grading import require_judged
from codea1.storage import json_lines
from codea1.storage.checksums import MANIFEST, checksum, checksums
from codea1.storage.objects import GrowingFile, location, names
from codea1.training.setup import game_rules
from codea1.training.stored_config import config_of

SECONDS_BETWEEN_LINES = 60.0
_MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt")  # weights, config and tokenizer

Key = tuple[str, int]  # a question's id and the index of an attempt, or a task's id and a round


@dataclass(frozen=True)
class Attempt:
    """One program for a question; an empty one counts as a failure."""

    question_id: str
    index: int  # among the attempts at the question
    program: str

    @property
    def key(self) -> Key:
        return self.question_id, self.index


@dataclass(frozen=True)
class Judged:
    """What came of judging one program, one suite or one question's choice."""

    rows: Mapping[Key, Mapping[str, Any]]  # to be kept; none where the sandbox failed
    reasons: Sequence[str] = ()  # of each program that ran: why the sandbox failed on it, empty where it did not


class EvaluationFolder:
    """Files of rows in a folder, each row with a key; config.json holds the settings, and refuses any other.

    The files are attempts.jsonl (programs) and results.jsonl (their verdicts); of a best-of-N suites.jsonl (what the
    Test LLM wrote for each program) and choices.jsonl (how many tests each program passes); of suites suites.jsonl
    (answers by task and round) and results.jsonl (scores by task).
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self.rows: dict[str, dict[Key, Row]] = {}  # what each file holds
        self._files: dict[str, GrowingFile] = {}

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str, settings: Mapping[str, Any], files: Sequence[str]) -> Iterator["EvaluationFolder"]:
        """Opens the folder with files named without .jsonl, and keeps other processes out until it is closed.

        Says on stderr by what other versions it was begun.

        Raises BadInput: it cannot be written, holds an evaluation with other settings, or is in use.
        """
        home, folder = location(path, "the folder of the evaluation"), cls(settings)
        with contextlib.ExitStack() as stack:
            begun = stack.enter_context(opened(str(home), settings)).made_with
            now = versions().items()
            if changed := [f"{name} {begun[name]}, here {here}" for name, here in now if begun.get(name, here) != here]:
                say(f"{home} was begun with {'; '.join(changed)}; what it holds is not judged again", sys.stderr)
            for name in files:
                lines = list(json_lines.whole_lines(home / f"{name}.jsonl"))
                text = "".join(line for line, _ in lines)
                folder._files[name] = GrowingFile(home / f"{name}.jsonl", text.encode())
                folder.rows[name] = {(row["question_id"], row["index"]): row for _, row in lines}
                stack.callback(folder._files[name].close)
            yield folder

    def attempts(self, question_ids: Collection[str]) -> list[Attempt]:
        """Returns the programs for these questions, in the order of questions and indices."""
        rows = sorted(self.rows["attempts"].items())
        return [Attempt(*key, row["program"]) for key, row in rows if key[0] in question_ids]

    def add(self, name: str, key: Key, row: Mapping[str, Any]) -> None:
        """Adds a line to one of the files."""
        self.rows[name][key] = whole = {"question_id": key[0], "index": key[1], **row}
        self._files[name].append(json_lines.encode(whole))


class Evaluation:
    """What evaluations of programs and of suites share. Every host makes one and calls the same."""

    def __init__(self, spec: EvaluationSpec, hosts: Hosts) -> None:
        """Finds run, step and models, and then makes --output: the benchmark must have been read before.

        Raises BadInput: there is no such run, step, model or Test LLM, or --output is another evaluation's or cannot be
        used. Weights stay unread.
        """
        self.spec, self.hosts = spec, hosts
        self._told: Callable[[str], None] = lambda tokens: None  # shows how many were drawn, next to a progress bar
        self.console = Console(stderr=True, quiet=not hosts.is_main)
        with hosts.agreed():
            self.run = RunFolder.existing(spec.run) if spec.run else None
            for url in {spec.model, spec.test_model} - {""}:
                Start(url).checkpoint()
            self._rules = game_rules(config_of(self.run)) if self.run else None
            asks_its_test_llm = (spec.best_of or spec.benchmark in SUITE_BENCHMARKS) and not spec.test_model
            if self.run and self._rules and asks_its_test_llm and "test" not in self._rules.method.roles:
                hint = ": --best_of can name the folder of one" if spec.best_of else ""
                raise BadInput(f"{self.run.path} has no Test LLM{hint}.")
            checkpoints = Checkpoints.reader(self.run.checkpoints) if self.run else None
        self.step: int = hosts.of_main(lambda: checkpoints.named(spec.step)) if checkpoints else 0
        evaluated = {"run": spec.run} if spec.run else {"model": spec.model, "completions": spec.completions}
        home = hosts.of_main(lambda: RunFolder.open(spec.output, {"evaluated": evaluated}) if spec.output else self.run)
        assert home is not None  # there is an --output or a run
        self.home: RunFolder = home

    @property
    def templates(self) -> PromptTemplates:
        """How programs and suites are asked for: as the run's players learned."""
        return self._rules.templates if self._rules else DEFAULT

    @property
    def sees_solution(self) -> bool:
        """Whether the Test LLM is shown programs: a run's as it learned, that of a folder always."""
        return self._rules is None or bool(self.spec.test_model) or self._rules.method.sees_solution

    def policy(self, role: str, url: str) -> Policy:
        """Loads the model in the folder `url`, or where that is empty the player of the run."""
        dtype, why = fastest_dtype(jax.devices()[0].platform)
        self.console.print(f"loading the {role} model" + (f", in {dtype}: {why}" if url else ""))
        if url:
            with self.hosts.agreed():
                policy = policy_of_folder(role, url, self.spec.lengths, self.spec.thinking)
        else:
            assert self.run is not None
            policy = policy_of_run(self.run, self.step, role, self.spec.lengths, self.hosts, self.spec.thinking)
        policy.call_between_chunks(lambda: self._told(f"{policy.functions.engine.counts['tokens']:,} tokens"))
        return policy

    def settings_of_policy(self, role: str, url: str, prefix: str = "") -> dict[str, Any]:
        """Returns what the answers of a `policy` depend on besides sampling. Reads its weights; main host alone."""
        prompt, response, _ = lengths_of(role, None if url else self.run, self.spec.lengths)
        if url:
            folders = {location(place, "the model folder") for place in (url, Start(url).base.url)}
            files = [(folder, [name for name in names(folder) if name.endswith(_MODEL_FILES)]) for folder in folders]
            weights = settings_digest(sorted(item for part in files for item in checksums(*part).items()))
        else:
            assert self.run is not None
            weights = settings_digest(checksum(self.run.checkpoints / str(self.step) / MANIFEST))
        return {
            f"{prefix}model": url or self.spec.run,
            f"{prefix}weights": weights,
            **({f"{prefix}thinking": self.spec.thinking} if self.spec.thinking else {}),
            **({f"{prefix}dtype": fastest_dtype(jax.devices()[0].platform)[0]} if url else {}),
            "step": self.step,
            f"{prefix}max_prompt_length": prompt,
            f"{prefix}max_response_length": response,
        }

    @contextlib.contextmanager
    def folder(
        self, name: str, settings: Callable[[], Mapping[str, Any]], files: Sequence[str]
    ) -> Iterator[EvaluationFolder | None]:
        """Opens the folder where the main host keeps what is done, next to the result; None on the others.

        Args:
          settings: gives all that the results depend on besides the benchmark's file; two evaluations whose settings
            differ are not one. The main host alone calls it.
          files: see `EvaluationFolder`.
        """
        with contextlib.ExitStack() as stack:
            folder = None
            with self.hosts.agreed():
                if self.hosts.is_main:
                    path = f"{self.home.evaluations}/{self._file(name)}"
                    file = "+".join(settings_digest(checksum(location(path, "--file"))) for path in self.spec.files)
                    whole = {"benchmark": self.spec.benchmark, "file": file, **settings()}
                    folder = stack.enter_context(EvaluationFolder.open(path, whole, files))
            yield folder

    def ask_for_texts(
        self,
        folder: EvaluationFolder | None,
        keys: Iterable[Key],
        ask: Callable[[Policy, Mapping[Key, str]], Iterator[tuple[Key, str]]],
    ) -> dict[Key, str]:
        """Returns all that the Test LLM wrote; what suites.jsonl lacks of it is asked for and kept there.

        Args:
          keys: of what is wanted. No model is loaded where none of it is missing.
          ask: yields texts as the Test LLM writes them, for keys that are not among those it is given. It may leave
            out what does not fit into the prompt.
        """
        texts: dict[Key, str] = self.hosts.of_main(
            lambda: {key: row["text"] for key, row in folder.rows["suites"].items()} if folder else {}
        )
        missing = sum(key not in texts for key in keys)
        if missing:
            with self.shown("suites", missing) as advance:
                for key, text in ask(self.policy("test", self.spec.test_model), dict(texts)):
                    texts[key] = text
                    if folder:
                        folder.add("suites", key, {"text": text})
                    advance()
        return texts

    def keep(
        self, folder: EvaluationFolder | None, file: str, what: str, total: int, judged: Iterable[Judged], before: int
    ) -> None:
        """Keeps what is judged in a file as it comes, but for what the sandbox lost: another start judges it again.

        Args:
          folder: None on all hosts but the main one; `judged` is empty there.
          what: is judged, in the plural.
          total: of `judged` where all of it is new.
          before: how many programs were judged by an earlier start.

        Raises BadInput as `require_judged` does.
        """
        reasons = [""] * before
        with self.shown(what, total) as advance:
            for part in judged:
                assert folder is not None
                for key, row in part.rows.items():
                    folder.add(file, key, row)
                reasons += part.reasons
                advance()
        with self.hosts.agreed():
            require_judged(reasons, what)
        if lost := sum(map(bool, reasons)):
            self.console.print(
                f"the sandbox failed on {lost} {what}: what depends on them is left out until this command runs again."
            )

    def publish(
        self, name: str, metrics: PerQuestion, question_ids: Sequence[str], left_out: Mapping[str, str]
    ) -> None:
        """Writes and prints metrics, with the questions and the reasons for those that are left out."""
        evaluation = summary(metrics, self.step, name, question_ids) | {"left_out": left_out}
        write_evaluation(self.home, self._file(name), evaluation)
        judged = len(question_ids) - len(left_out)
        title = f"{name}, {judged} of {len(question_ids)} questions, step {self.step}"
        Console().print(evaluation_table(evaluation, title))
        print(f"wrote {self.home.evaluations / self._file(name)}.json")

    @contextlib.contextmanager
    def shown(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """Shows a progress bar, or a line a minute where there is no terminal; yields what to call for each of all."""
        columns = *Progress.get_default_columns(), TextColumn("{task.fields[tokens]}")
        with Progress(*columns, console=self.console, disable=not self.hosts.is_main) as progress:
            task, said = progress.add_task(what, total=total, tokens=""), time.monotonic()

            def told(tokens: str) -> None:
                nonlocal said
                progress.update(task, tokens=tokens)
                if not self.console.is_terminal and time.monotonic() - said >= SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    self.console.print(f"{what}: {progress.tasks[task].completed:.0f} of {total}, {tokens}")

            self._told = told
            yield lambda: progress.advance(task)

    def _file(self, name: str) -> str:
        """Returns what an evaluation is called in evaluations/."""
        return f"{name}_step_{self.step:06d}"


def settings_digest(value: Any) -> str:
    """Returns a text that is equal for equal values alone, as far as `repr` tells them apart."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
