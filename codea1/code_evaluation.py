"""The evaluation of programs on a benchmark of the Code LLM, from what is asked to the file with the result."""

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import Progress

from codea1.assembly import config_of, game_rules, sandbox_limits
from codea1.benchmarks.attempts import TRUTHS, Attempt, attempts_of_file, attempts_of_truth, by_question
from codea1.benchmarks.best_of_n import chosen, count_passes, stated_tests, suites
from codea1.benchmarks.code_benchmark import CodeBenchmark
from codea1.benchmarks.code_benchmarks import load_benchmark
from codea1.benchmarks.evaluation_folder import BEST_OF_N, PROGRAMS, EvaluationFolder
from codea1.benchmarks.held_out import PerQuestion, summary
from codea1.benchmarks.judging import Judging, broken_questions, measured
from codea1.benchmarks.sampling import Draw, sampled
from codea1.config import default_config
from codea1.errors import BadInput
from codea1.game.methods import METHODS
from codea1.game.prompts import DEFAULT
from codea1.game.question import Question
from codea1.hosts import Hosts
from codea1.models import huggingface
from codea1.policy import Policy, policy_of_folder, policy_of_run
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.evaluations import write_evaluation
from codea1.runs.folder import RunFolder
from codea1.runs.manifest import NAME as MANIFEST
from codea1.runs.tables import evaluation_table
from codea1.sandbox.grading import Grader
from codea1.sandbox.isolation import AUTO
from codea1.sandbox.pool import SandboxPool
from codea1.storage.checksums import checksum, checksums
from codea1.storage.objects import location, names

_MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt")  # weights, config and tokenizer


@dataclass(frozen=True)
class Asked:
    """What the user wants to know; texts are empty where nothing was given."""

    run: str
    step: str  # of the run
    model: str
    completions: str
    output: str
    benchmark: str
    file: str
    semantics: str
    draw: Draw
    lengths: tuple[int, int, int]  # of prompts, of responses, and slots; see `codea1.policy`
    best_of: bool
    test_model: str
    num_tests: int


def evaluate_code(asked: Asked, hosts: Hosts) -> None:
    """Measures, prints the tables and writes evaluations/NAME.json; all hosts answer, and the main one judges.

    Raises BadInput for all that can be found wrong before a model is loaded.
    """
    with contextlib.ExitStack() as stack:
        with hosts.agreed():
            pool = stack.enter_context(sandbox()) if hosts.is_main else None
            benchmark = load_benchmark(asked.benchmark, asked.file, asked.semantics, pool)
            run = RunFolder.existing(asked.run) if asked.run else None
            attempts = _given(asked.completions, benchmark)
            _require_models(asked, run)
        step = hosts.of_main(lambda: Checkpoints.reader(run.checkpoints).named(asked.step)) if run else 0
        home = hosts.of_main(lambda: home_of(asked, run))
        with hosts.agreed():
            folder = None
            if hosts.is_main:
                settings = _settings(asked, attempts, run, step)
                folder = stack.enter_context(folder_of(home, asked.benchmark, step, settings, PROGRAMS))
        evaluation = _Evaluation(asked, hosts, benchmark, pool, folder, home, run, step)
        evaluation.judge(attempts)
        if asked.best_of:
            evaluation.choose()


class _Evaluation:
    """One evaluation; only the main host has a sandbox and a folder."""

    def __init__(
        self,
        asked: Asked,
        hosts: Hosts,
        benchmark: CodeBenchmark,
        pool: SandboxPool | None,
        folder: EvaluationFolder | None,
        home: RunFolder,
        run: RunFolder | None,
        step: int,
    ) -> None:
        self.asked, self.hosts, self.benchmark, self.pool = asked, hosts, benchmark, pool
        self.folder, self.home, self.run, self.step = folder, home, run, step
        self.console = Console(stderr=True, quiet=not hosts.is_main)
        self.templates = game_rules(config_of(run)).templates if run else DEFAULT
        self.broken: dict[str, str] = {}  # questions that are left out, with the reasons

    def judge(self, attempts: Sequence[Attempt] | None) -> None:
        """Judges what was given, or what the Code LLM answers, and publishes how many are right."""
        if self.pool:
            self.console.print(self.pool.isolation_note)
        self.broken = self.hosts.of_main(self._broken)
        questions = self._sound()
        if attempts is not None:
            attempts = [attempt for attempt in attempts if attempt.question_id not in self.broken]
        done = self.hosts.of_main(lambda: set(self.folder.rows("attempts")))
        with self._shown("programs", self._number_of(attempts, questions)) as seen:
            judging = Judging(self.benchmark, self.folder, seen) if self.folder else None
            for attempt in self._attempts() if self.folder else ():
                judging.add(attempt)
            for attempt in self._new_attempts(attempts, questions, done):
                if judging:
                    self.folder.add_attempt(attempt)
                    judging.add(attempt)
            if judging:
                judging.finish()
                self._tell_failures(judging)
        if self.folder:
            self._publish(self.asked.benchmark, measured(self.benchmark, self.folder, self.broken))

    def choose(self) -> None:
        """Lets the Test LLM's tests choose one program of each question, and publishes how many of those are right."""
        found = self.hosts.of_main(lambda: by_question(self._attempts()))
        name = f"{self.asked.benchmark}_best_of_{min(map(len, found.values()))}"
        with contextlib.ExitStack() as stack:
            with self.hosts.agreed():
                kept = None
                if self.folder:
                    settings = _best_of_settings(self.asked, self.folder.settings, self.run, self.step)
                    kept = stack.enter_context(folder_of(self.home, name, self.step, settings, BEST_OF_N))
            self._write_suites(kept, found)
            if kept:
                self._publish(name, {"pass_at_1": self._passes_of_chosen(kept, found)})

    def _write_suites(self, kept: EvaluationFolder | None, attempts: Mapping[str, Sequence[Attempt]]) -> None:
        written = self.hosts.of_main(lambda: set(kept.rows("suites")))
        questions = [question for question in self._sound() if question.id in attempts]
        programs = [attempt for each in questions for attempt in attempts[each.id] if attempt.program]
        missing = sum((attempt.question_id, attempt.index) not in written for attempt in programs)
        if not missing:
            return
        drawn = suites(
            questions,
            attempts,
            self._policy("test"),
            self.templates,
            self.asked.num_tests,
            sees_solution=bool(self.asked.test_model) or METHODS[config_of(self.run).method].sees_solution,
            seed=self.asked.draw.seed,
            done=written,
        )
        with self._shown("suites", missing) as seen:
            for key, text in drawn:
                if kept:
                    kept.add("suites", key, {"text": text})
                seen()
                missing -= 1
        if missing:
            self.console.print(f"{missing} programs do not fit into the Test LLM's prompt and get no suite.")

    def _broken(self) -> dict[str, str]:
        with self._shown("ground truths", len(self.benchmark.questions)) as seen:
            broken = broken_questions(self.benchmark, seen)
        for id, reason in broken.items():
            self.console.print(f"{id} is left out: {reason}", markup=False)
        if len(broken) == len(self.benchmark.questions):
            id, reason = next(iter(broken.items()))
            raise BadInput(f"no question of {self.benchmark.name} can be judged here; {id}: {reason}.")
        return broken

    def _attempts(self) -> list[Attempt]:
        """Those of the folder at questions that can be judged."""
        return [attempt for attempt in self.folder.attempts if attempt.question_id not in self.broken]

    def _sound(self) -> list[Question]:
        return [question for question in self.benchmark.questions if question.id not in self.broken]

    def _number_of(self, attempts: Sequence[Attempt] | None, questions: Sequence[Question]) -> int:
        return len(questions) * self.asked.draw.samples if attempts is None else len(attempts)

    def _new_attempts(
        self, given: Sequence[Attempt] | None, questions: Sequence[Question], done: set[tuple[str, int]]
    ) -> Iterator[Attempt]:
        if given is not None:
            return (attempt for attempt in given if (attempt.question_id, attempt.index) not in done)
        if len(done) == self._number_of(None, questions):
            return iter(())
        return sampled(self.benchmark, questions, self._policy("code"), self.templates, self.asked.draw, done)

    def _policy(self, role: str) -> Policy:
        url = self.asked.model if role == "code" else self.asked.test_model
        self.console.print(f"loading the {role} model")
        if url:
            with self.hosts.agreed():
                return policy_of_folder(role, url, self.asked.lengths)
        return policy_of_run(self.run, str(self.step), role, self.asked.lengths, self.hosts)

    def _passes_of_chosen(self, kept: EvaluationFolder, found: Mapping[str, Sequence[Attempt]]) -> list[float]:
        """For each question of the benchmark, whether the chosen program passes."""
        grader, running = Grader(self.pool), {}
        for question in (question for question in self._sound() if question.id in found):
            keys = [(question.id, attempt.index) for attempt in found[question.id]]
            texts = [kept.rows("suites")[key]["text"] for key in keys if key in kept.rows("suites")]
            tests = stated_tests(texts, question.entry_point, self.asked.num_tests)
            if not all(key in kept.rows("choices") for key in keys):
                running[question.id] = len(tests), count_passes(found[question.id], tests, grader)
        lost = 0
        with self._shown("choices", len(running)) as seen:
            for id, (num_tests, passed) in running.items():
                passed_of = passed.result()
                lost += None in passed_of
                for attempt, count in zip(found[id], passed_of, strict=True) if None not in passed_of else ():
                    kept.add("choices", (id, attempt.index), {"passed": count, "tests": num_tests})
                seen()
        if lost:
            self.console.print(
                f"the sandbox failed on programs of {lost} questions: these are left out until this command runs again."
            )
        counts: dict[str, dict[int, int]] = {}
        for (id, index), row in kept.rows("choices").items():
            counts.setdefault(id, {})[index] = row["passed"]
        return [self._passes(question.id, counts.get(question.id, {})) for question in self.benchmark.questions]

    def _passes(self, question_id: str, counts: Mapping[int, int]) -> float:
        """Whether the chosen one of a question's attempts passes; `counts` is how many tests each passes, by index."""
        if question_id in self.broken or not counts:
            return math.nan
        result = self.folder.rows("results").get((question_id, chosen(counts)))
        return math.nan if result is None else float(result["verdict"] == "pass")

    def _tell_failures(self, judging: Judging) -> None:
        attempts = self._attempts()
        empty = sum(not attempt.program for attempt in attempts)
        if empty:
            self.console.print(f"{empty} of {len(attempts)} programs are empty and count as failures.")
        if judging.lost:
            self.console.print(
                f"the sandbox failed on {len(judging.lost)} programs: their questions are left out until this command "
                "runs again."
            )

    def _publish(self, name: str, metrics: PerQuestion) -> None:
        questions = [question.id for question in self.benchmark.questions]
        publish(self.home, name, summary(metrics, self.step, name), questions, self.broken)

    @contextlib.contextmanager
    def _shown(self, what: str, total: int) -> Iterator[Any]:
        with Progress(console=self.console, disable=not self.hosts.is_main) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)


def sandbox() -> SandboxPool:
    """The sandbox of an evaluation."""
    return SandboxPool(0, sandbox_limits(default_config()), AUTO)


def publish(
    home: RunFolder, name: str, evaluation: Mapping[str, Any], question_ids: Sequence[str], left_out: Mapping[str, str]
) -> None:
    """Writes an evaluation, with its questions and with the reasons for those that are left out, and prints it."""
    evaluation = {**evaluation, "question_ids": question_ids, "left_out": left_out}
    file = _file(name, evaluation["step"])
    write_evaluation(home, file, evaluation)
    judged = evaluation["questions"] - len(left_out)
    title = f"{name}, {judged} of {evaluation['questions']} questions, step {evaluation['step']}"
    Console().print(evaluation_table(evaluation, title))
    print(f"wrote {home.evaluations / file}.json")


def _given(completions: str, benchmark: CodeBenchmark) -> list[Attempt] | None:
    if not completions:
        return None
    if completions in TRUTHS:
        return attempts_of_truth(completions, benchmark)
    return attempts_of_file(completions, benchmark)


def _require_models(asked: Asked, run: RunFolder | None) -> None:
    """Raises BadInput where a folder holds no model, or the run no Test LLM that is asked for; weights stay unread."""
    for url in filter(None, (asked.model, asked.test_model)):
        huggingface.Checkpoint(url)
    if asked.best_of and not asked.test_model and "test" not in METHODS[config_of(run).method].roles:
        raise BadInput(f"{run.path} has no Test LLM for --best_of: give --test_model.")


def home_of(asked: Asked, run: RunFolder | None) -> RunFolder:
    """Where the result goes: --output, or the run itself."""
    if not asked.output:
        return run
    evaluated = {"run": asked.run} if asked.run else {"model": asked.model, "completions": asked.completions}
    return RunFolder.open(asked.output, {"evaluated": evaluated})


def folder_of(
    home: RunFolder, name: str, step: int, settings: Mapping[str, Any], files: Sequence[str]
) -> EvaluationFolder:
    """Where an evaluation keeps what it does, beside its result."""
    return EvaluationFolder(f"{home.evaluations}/{_file(name, step)}", settings, files)


def _file(name: str, step: int) -> str:
    """What an evaluation is called in evaluations/."""
    return f"{name}_step_{step:06d}"


def _settings(asked: Asked, attempts: Sequence[Attempt] | None, run: RunFolder | None, step: int) -> dict[str, Any]:
    """All that the results depend on; two evaluations whose settings differ are not one."""
    settings = {"benchmark": asked.benchmark, "file": content_of_file(asked.file)}
    if asked.benchmark in ("humanevalplus", "mbppplus"):
        settings["semantics"] = asked.semantics
    if attempts is not None:
        settings |= {"completions": asked.completions, "attempts": digest(attempts)}
    else:
        prompt, response, _ = asked.lengths
        settings |= {"model": asked.model or asked.run, "weights": content_of_model(asked.model, run, step)}
        settings |= {"step": step, **dataclasses.asdict(asked.draw)}
        settings |= {"max_prompt_length": prompt, "max_response_length": response}
    return settings


def _best_of_settings(asked: Asked, of_programs: Mapping[str, Any], run: RunFolder | None, step: int) -> dict[str, Any]:
    """The same of a best-of-N: also what its programs depend on."""
    prompt, response, _ = asked.lengths
    return {
        **of_programs,
        "max_prompt_length": prompt,
        "max_response_length": response,
        "test_model": asked.test_model or asked.run,
        "test_weights": content_of_model(asked.test_model, run, step),
        "num_tests": asked.num_tests,
        "seed": asked.draw.seed,
    }


def content_of_file(path: str) -> str:
    """Equal for equal files alone, wherever they lie."""
    return digest(checksum(location(path, "--file")))


def content_of_model(url: str, run: RunFolder | None, step: int) -> str:
    """Equal for equal models alone: of the folder at `url`, or else of a step of a run."""
    if not url:
        return digest(checksum(run.checkpoints / str(step) / MANIFEST))
    folder = location(url, "the model folder")
    return digest(sorted(checksums(folder, (name for name in names(folder) if name.endswith(_MODEL_FILES))).items()))


def digest(value: Sequence[Any]) -> str:
    """Equal for equal questions or answers alone."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
