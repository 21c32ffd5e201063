"""What was measured of runs, over seeds: those of folders, or those that a study keeps, a row of JSON for each."""

import ast
import fcntl
import fnmatch
import gzip
import hashlib
import json
import math
import shutil
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import codea1
from codea1.evaluation.result_files import per_question, read_evaluation
from codea1.lab.statistics import Scores
from codea1.lab.study.declaration import SUITES, Study, Trial
from codea1.lab.study.schedule import Job, Schedule, marker_of, seconds_taken
from codea1.lab.worlds.compositions import composition_of
from codea1.runs.folder import RunFolder
from codea1.runs.metrics import read_metrics
from codea1.runtime.errors import BadInput
from codea1.runtime.fields import leaves
from codea1.storage.objects import exists, names, write_atomically

METRICS = (
    "code_pass_at_1",
    "code_pass_at_1_greedy",
    "test_validity",
    "test_mutation_score",
    "test_strict_kill",
    "test_mul",
)
# Of every step, as series over the run.
CURVES = (
    "code/reward",
    "code/pass_rate_new",
    "code/pass_rate_golden",
    "code/hidden_pass_rate",
    "code/paid_but_wrong",
    "code/contrast",
    "test/reward",
    "test/validity",
    "test/adversarial",
    "test/hidden_kill_rate",
    "test/own_kill_rate",
    "test/trivial_rate",
    "validation/code_pass_at_1",
    "validation/test_validity",
    "validation/test_mutation_score",
    "validation/score",
)


# What seeds of one arm may differ in: the seed and the models of that seed, and what decides nothing.
_OWN = ("seed", "code.model", "test.model", SUITES, "profile.*", "watchdog.*", "sandbox.slots", "data.folder")

# Of the package: what decides what a run does, besides its config.
_DECIDES = (
    *("data", "game", "lab/sft", "lab/worlds", "learn", "models", "players", "rollout", "sandbox", "values"),
    *("evaluation/held_out.py", "training/step.py"),
)

_CODE = "code"  # folder in the workdir: for each job the digests of what made its output
OWN_SPLIT = "test"  # of the questions that `codea1.train` itself asks before the first step and after the last
CHOICE = "_best_of_"  # in the split of a benchmark whose samples a Test LLM chose among
# Of the settings of `codea1.benchmark`, those in which numbers that stand beside each other may differ, or `samples`.
_OF_ONE = ("model", "weights", "test_model", "test_weights", "step", "seed", "samples")
_LAST_SHARE = 0.1  # of the steps, whose mean is the end of a curve

PASS = "code_pass_at_1"

# A split, "before" or "after" training, and whose Test LLM chose among the samples.
Key = tuple[str, str, str]


class Measure(NamedTuple):
    """One metric of one evaluation, as `codea1.evaluation.result_files` keeps it; or the end of a training curve."""

    metric: str  # where it ends in "*", the first metric that begins so
    split: str = OWN_SPLIT  # of the evaluation; empty: a metric of metrics.jsonl, over the last tenth of the steps


class Measured(NamedTuple):
    """One measure of one run: its scores, of which questions, and how often each was asked."""

    scores: np.ndarray  # [questions, factors], shares
    question_ids: tuple[str, ...] = ()  # in the order of the scores; none for a curve
    samples: str = ""  # programs of a question, for a metric that may be measured with any number of them
    settings: Mapping[str, Any] = {}  # of `codea1.benchmark`, but for those that `_OF_ONE` names


@dataclass(frozen=True)
class Result:
    """One run, and what was measured of it: all that its folder has, or what is kept of it as a row."""

    run: Trial
    config: Mapping[str, Any] | str  # in rows of an older version a digest of it
    evaluations: Mapping[Key, Mapping[str, Any]]  # as `codea1.evaluation.result_files` has them
    rows: Sequence[Mapping[str, Any]]  # metrics, step by step
    recipe: Mapping[str, Any] = field(default_factory=dict)  # `Study.recipe` of its arm
    steps: int = 0  # that are done
    tokens: float = 0.0  # sampled in training
    cpu_seconds: float = 0.0  # of the trainer, in training
    code: str = ""  # the digests that `note_code` noted, joined by "+"; empty: the row is older
    folder: RunFolder | None = None  # of one that is no row
    trains: bool = True  # it is a training run, and not one of `codea1.benchmark --output`

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Result":
        """Returns what a row of the results' file holds. Raises what a damaged one makes Python raise."""
        run, curves, evaluations = Trial(**row["run"]), row["curves"], {}
        for moment in ("before", "after"):
            metrics = {name: {"per_question": values} for name, values in row[moment].items()}
            evaluations[OWN_SPLIT, moment, ""] = {"question_ids": row["question_ids"], "metrics": metrics}
        steps = enumerate(zip(*curves.values(), strict=True))
        rows = [{"step": step, **dict(zip(curves, values, strict=True))} for step, values in steps]
        totals = {name: row[name] for name in ("recipe", "steps", "tokens", "cpu_seconds")}
        return cls(run, row["config"], evaluations, rows, **totals, code=row.get("code", ""))

    def row(self) -> dict[str, Any]:
        """Returns what a study keeps of it: metrics of its own split, and the curves that the report shows."""
        row = {name: getattr(self, name) for name in ("recipe", "steps", "tokens", "cpu_seconds", "config", "code")}
        for moment in ("before", "after"):
            own = self.metrics(moment)
            row[moment] = {name: np.round(per_question(own[name]), 4).tolist() for name in METRICS if name in own}
        series = {name: [row.get(name) for row in self.rows] for name in CURVES}
        curves = {name: [None if each is None else round(each, 4) for each in own] for name, own in series.items()}
        row["curves"] = {name: curve for name, curve in curves.items() if any(each is not None for each in curve)}
        return {"run": asdict(self.run), **row, "question_ids": self.question_ids}

    @property
    def name(self) -> str:
        """What it is called: its folder, or the run that a row is of."""
        return str(self.folder.path) if self.folder else self.run.name

    @property
    def fields(self) -> dict[str, Any]:
        """The config's fields by their dotted names."""
        return {} if isinstance(self.config, str) else dict(leaves(self.config))

    @property
    def question_ids(self) -> tuple[str, ...]:
        """The ids of the run's own questions, in the order of its scores."""
        return tuple(self.evaluations[OWN_SPLIT, "after", ""]["question_ids"])

    def metrics(self, moment: str) -> Mapping[str, Any]:
        """Returns a moment's metrics of the run's own questions."""
        return self.evaluations[OWN_SPLIT, moment, ""]["metrics"]

    def measured(self, measure: Measure, moment: str = "after", chooser: str = "") -> Iterator[Measured]:
        """Yields a measure as it was taken, once for each number of samples; nothing where it was not.

        Args:
          measure: a curve has an end where the run has ended.
          moment: "before" training or "after" it.
          chooser: whose Test LLM chose among the samples, which are then judged by that choice.
        """
        metric, split = ("pass_at_1", f"{measure.split}{CHOICE}*") if chooser else measure
        if not measure.split:
            values = [row[metric] for row in self.rows if row.get(metric) is not None]
            if values and self.has_ended and moment == "after":
                yield Measured(np.array([[np.mean(values[-max(1, round(_LAST_SHARE * len(values))) :])]]))
            return
        for (own, when, by), evaluation in self.evaluations.items():
            if not fnmatch.fnmatch(own, split) or (when, by) != (moment, chooser):
                continue
            for name in fnmatch.filter(evaluation["metrics"], metric):
                values = per_question(evaluation["metrics"][name])
                counted = own if chooser else name if "*" in metric else ""
                ids = tuple(evaluation["question_ids"])
                shares = values[:, None] if values.ndim == 1 else values
                yield Measured(shares, ids, counted.rpartition("_")[2], evaluation.get("settings", {}))

    @property
    def early(self) -> list[int]:
        """The steps before the run's last at which it was measured last."""
        measured = self.evaluations.items()
        steps = {each["step"] for (split, moment, _), each in measured if moment == "after" and split != "validation"}
        return sorted(step for step in steps if step < self.fields.get("steps", 0))

    @property
    def has_ended(self) -> bool:
        """Whether the last step of its config is done."""
        return bool(self.rows) and self.rows[-1]["step"] >= self.fields.get("steps", 0)


Arms = Mapping[str, Sequence[Result]]


def evaluations_of(folder: RunFolder, chooser: Callable[[Mapping[str, Any]], str]) -> dict[Key, Mapping[str, Any]]:
    """Returns what was measured in a folder, of several steps after training the last; `chooser` says who chose.

    The `settings` of one of `codea1.benchmark` are with it.

    Raises:
      BadInput: an evaluation is damaged.
      StorageFailed: one cannot be read.
    """
    found: dict[Key, Mapping[str, Any]] = {}
    for name in names(folder.evaluations):
        evaluation = read_evaluation(folder, name.removesuffix(".json")) if name.endswith(".json") else None
        if evaluation:
            kept = folder.evaluations / name.removesuffix(".json")
            if exists(kept / "config.json"):
                settings = RunFolder.existing(str(kept)).config
                evaluation["settings"] = {key: value for key, value in settings.items() if key not in _OF_ONE}
            key = evaluation["split"], "after" if evaluation["step"] else "before", chooser(evaluation)
            if key not in found or found[key]["step"] <= evaluation["step"]:
                found[key] = evaluation
    return found


def stacked(seeds: Sequence[Sequence[Measured]], what: str) -> list[Scores]:
    """Returns the measures of some seeds as `codea1.lab.statistics` reads them: one array for each measure.

    Raises:
      BadInput: the seeds were not asked the same questions; `what` was measured is named.
    """
    parts = list(zip(*seeds, strict=True))
    if not all(map(same_questions, parts)):
        raise BadInput(f"{what} was not measured on the same questions for every seed.")
    return [np.stack([each.scores for each in part]) for part in parts]


def same_questions(measured: Sequence[Measured]) -> bool:
    """Returns whether all are of the same questions in the same order, by their ids."""
    return len({each.question_ids for each in measured}) == 1


def require_seeds_of_one_arm(results: Iterable[Result]) -> None:
    """Raises BadInput, which tells the fields, where configs of runs differ more than seeds of an arm."""
    every = list(results)
    for other in every[1:]:
        if fields := ", ".join(differences(every[0].config, other.config)):
            raise BadInput(
                f"{every[0].name} and {other.name} are not seeds of one experiment: their configs differ in {fields}."
            )


def of_one_code(results: Iterable[Result]) -> bool:
    """Returns whether rows may be compared: all are of one code. A row of several digests alone is not."""
    return len({code for each in results for code in each.code.split("+")}) < 2


def code_digest(root: Path = Path(codea1.__file__).parent) -> str:
    """Returns a digest of the source that decides what a run does, without docstrings, comments and layout.

    It is the same in every Python that parses the source to the same tree.
    """
    paths = [path for name in _DECIDES for path in sorted((root / name).rglob("*.py")) or [root / name]]
    files = {path.relative_to(root).as_posix(): _tree_digest(path.read_text()) for path in paths}
    return hashlib.sha256(repr(files).encode()).hexdigest()[:16]


def note_code(job: Job, workdir: str) -> None:
    """Notes the digests of what makes a job's output: of today's source, of what it goes on with and of what it reads.

    Raises BadInput: of one of those nothing is noted.
    """
    own = [job.name] if job.folder and Path(job.folder).exists() else []
    codes = {code_digest()}.union(*(noted_code(name, workdir) for name in (*job.needs, *own)))
    write_atomically(Path(workdir) / _CODE / job.name, "\n".join(sorted(codes)))


def noted_code(name: str, workdir: str) -> list[str]:
    """Returns the digests of what made a job's output, sorted. Raises BadInput: nothing was noted."""
    try:
        return (Path(workdir) / _CODE / name).read_text().split()
    except FileNotFoundError:
        unknown = f"{workdir}: nothing says of what code {name} is, as where an older version made it"
        raise BadInput(f"{unknown}: give another --workdir.") from None


@cache  # a study starts many jobs, and sources seldom change meanwhile
def _tree_digest(source: str) -> str:
    return hashlib.sha256(repr(_bare(ast.parse(source))).encode()).hexdigest()


def _bare(node: Any) -> Any:
    """Returns a syntax tree as nested lists, without positions, docstrings, and fields that are empty."""
    if isinstance(node, list):
        # A text that stands alone does nothing, wherever it stands.
        texts = (isinstance(each, ast.Expr) and isinstance(getattr(each.value, "value", None), str) for each in node)
        return [_bare(each) for each, is_text in zip(node, texts, strict=True) if not is_text]
    if isinstance(node, ast.AST):  # a newer Python has more fields, which are empty in what an older one parses
        fields = [(name, _bare(value)) for name, value in ast.iter_fields(node)]
        return [type(node).__name__, *((name, value) for name, value in fields if value not in (None, []))]
    return node


def differences(one: Mapping[str, Any] | str, other: Mapping[str, Any] | str) -> list[str]:
    """Returns the dotted names of the fields in which two configs differ, but for those that `_OWN` names."""
    if isinstance(one, str) or isinstance(other, str):
        return [] if one == other else ["fields that their rows do not keep"]
    one, other = ({name: json.dumps(item) for name, item in leaves(config)} for config in (one, other))
    differing = [name for name in sorted(one.keys() | other.keys()) if one.get(name) != other.get(name)]
    return [name for name in differing if not any(fnmatch.fnmatch(name, pattern) for pattern in _OWN)]


def by_composition(scores: Scores, question_ids: Sequence[str], world: str, only: Collection[str]) -> Scores:
    """Returns scores [seeds, compositions, factors] of those of procedural questions: of `only` some, or of all.

    Questions of one composition differ in their constants alone and are no independent draws: their mean is one value.
    NaN where no question of a composition has a value. Any other question is a composition.

    Raises BadInput: a question is of no family of its world.
    """
    compositions = [composition_of(id, world) for id in question_ids]
    names = [name for name in dict.fromkeys(compositions) if not only or name in only]
    members = [[i for i, each in enumerate(compositions) if each == name] for name in names]
    if not members:
        return scores[:, :0]
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # a mean of nothing is NaN
        return np.stack([np.nanmean(scores[:, questions], axis=1) for questions in members], axis=1)


def scores(seeds: Sequence[Result], metric: str, moment: str = "after", only: Collection[str] = ()) -> Scores:
    """Returns a metric of runs that are alike but for their seeds, a value for each composition of questions.

    `only` names some compositions, as `composition_of` does; all count where it is empty.

    Raises BadInput: the runs were not measured on the same questions, a question is of no family of their world, or
    their configs differ.
    """
    require_seeds_of_one_arm(seeds)
    found = [next(each.measured(Measure(metric), moment)) for each in seeds]
    (values,) = stacked([[each] for each in found], f"{seeds[0].name}, {metric},")
    return by_composition(values, found[0].question_ids, seeds[0].run.world, only)


class Results:
    """What was measured of runs: of those that are given, and of those in a study's file, to which rows are added."""

    def __init__(self, path: str = "", given: Iterable[Result] = ()):
        """Reads the file that is there. Raises BadInput: it is damaged."""
        self._path, self._given = Path(path), list(given)
        self._rows = self._kept()  # of the file

    def __contains__(self, run: Trial) -> bool:
        return run in self._rows

    def __iter__(self) -> Iterator[Result]:
        return chain(self._given, self._rows.values())

    def __getitem__(self, run: Trial) -> Result:
        return self._rows[run]

    @property
    def worlds(self) -> set[str]:
        """Where all of it was measured."""
        return {result.run.world for result in self}

    def seeds(self, world: str, arm: str) -> dict[int, Result]:
        """Returns the runs of an arm by seed. Raises BadInput: their configs differ in more."""
        own = [each for each in self if each.trains and (each.run.world, each.run.arm) == (world, arm)]
        require_seeds_of_one_arm(own)
        return {each.run.seed: each for each in sorted(own, key=lambda each: each.run.seed)}

    def score(self, run: Trial) -> float:
        """Returns what recipes are chosen by: pass@1 of the Code LLM plus Mul of the Test LLM, after training."""
        measured = [name for name in ("code_pass_at_1", "test_mul") if name in self._rows[run].metrics("after")]
        return float(sum(np.nanmean(scores([self._rows[run]], name), axis=1).prod() for name in measured))

    def complete(self, study: Study, workdir: str, at_once: int, hours: float = math.inf) -> bool:
        """Runs what is not there yet, `at_once` side by side; returns False where a job did not end well.

        Stage by stage and rung by rung.

        Raises:
          BadInput: a row was made by another recipe than its arm declares now, or of what is in the workdir it is not
            known by what code it was made, or the rows by which the arms of the next rung are chosen are of several.
          HoursOver: so many hours are over, and what ran has saved.
        """
        for run, row in self._rows.items():
            declared = study.recipe(run.arm) if run.arm in study.arms else row.recipe
            if row.recipe != declared:
                raise BadInput(
                    f"{self._path}: {run.name} was made as {row.recipe}, and the study declares {declared}: give "
                    "the arm or a sweep's workdir another name, or remove the file."
                )
        deadline = time.monotonic() + 3600 * hours
        for stage in study.stages:
            ranked: list[Result] = []
            for runs in study.rungs(stage, self.score):
                if not of_one_code(ranked):
                    codes = ", ".join(sorted({each.code or "unknown" for each in ranked}))
                    raise BadInput(f"stage {stage.name}: rows of different code are not ranked: {codes}.")
                left = {run.name: run for run in runs if run not in self}

                def keep(job: Job, left: dict[str, Trial] = left) -> None:
                    if job.name in left:
                        run, code = left[job.name], "+".join(noted_code(job.name, workdir))
                        self.keep(run, study.recipe(run.arm), job.folder, study.left_over(run.arm), code)

                jobs = study.jobs(list(left.values()), workdir)
                for job in jobs:
                    is_done = seconds_taken(job, workdir) is not None
                    is_there = job.folder != "" and Path(job.folder).exists()
                    if is_done or is_there:
                        noted_code(job.name, workdir)
                    if job.name in left and is_done:  # its row is lost
                        if is_there:
                            keep(job)
                        else:
                            marker_of(job.name, workdir).unlink()
                hours_left = (deadline - time.monotonic()) / 3600
                print(f"stage {stage.name}: {sum(run in self for run in runs)} of {len(runs)} runs are done")
                schedule = Schedule(jobs, workdir, at_once, hours_left, keep, partial(note_code, workdir=workdir))
                if left and not schedule.run():
                    return False
                ranked += [self[run] for run in runs]
        return True

    def keep(
        self, run: Trial, recipe: Mapping[str, Any], folder: str, left_over: Sequence[str] = (), code: str = ""
    ) -> None:
        """Adds the row of a run that ended, and removes what is `left_over` in its folder.

        Other threads and processes may add theirs to the file meanwhile: its rows are read again under a lock.

        Raises BadInput: the run lacks an evaluation, or asked other questions in one; or its file is damaged.
        """
        row = _read(run, recipe, RunFolder.existing(folder), code).row()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(f"{self._path}.lock", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._rows = {**self._rows, **self._kept(), run: Result.of_row(row)}
            lines = [json.dumps(each.row()) for each in self._rows.values()]
            write_atomically(self._path, gzip.compress("\n".join(lines).encode(), mtime=0))
        for name in left_over:
            shutil.rmtree(Path(folder) / name, ignore_errors=True)

    def _kept(self) -> dict[Trial, Result]:
        """Returns the rows of the file; none where there is none. Raises BadInput: it is damaged."""
        try:
            kept = gzip.decompress(self._path.read_bytes()) if self._path.is_file() else b""
            rows = [Result.of_row(json.loads(line)) for line in kept.decode().splitlines()]
        except (OSError, EOFError, ValueError, TypeError, KeyError) as error:
            raise BadInput(f"results {self._path} are damaged: {type(error).__name__}: {error}.") from None
        return {row.run: row for row in rows}


def _read(run: Trial, recipe: Mapping[str, Any], folder: RunFolder, code: str) -> Result:
    evaluations: dict[Key, Mapping[str, Any]] = {}
    for moment in ("before", "after"):  # of all evaluations in the folder those that the run itself made
        evaluation = read_evaluation(folder, moment)
        if evaluation is None:
            raise BadInput(f"run {folder.path} has no evaluation {moment} training.")
        evaluations[OWN_SPLIT, moment, ""] = evaluation
    before, after = (each["question_ids"] for each in evaluations.values())
    if before != after:
        raise BadInput(f"run {folder.path} was not asked the same questions before and after training.")
    rows = read_metrics(folder.metrics)
    tokens, seconds = (sum(row.get(name, 0.0) for row in rows) for name in ("perf/tokens", "perf/cpu_seconds"))
    steps = int(rows[-1]["step"])
    return Result(run, folder.config, evaluations, rows, dict(recipe), steps, tokens, seconds, code)
