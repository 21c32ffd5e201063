"""A siege: a grader judges every attempt, and what came of it as a table, Markdown and JSON."""

import json
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from codea1.lab.report.tables import TextTable
from codea1.lab.siege.attempts import OWN, RIGHT, WRONG, Challenge, families, questions, sources
from codea1.lab.siege.processes import DIED, NOT_ASKED, NOT_PAID, PAID, GraderCommand, GraderProcess

_SAYINGS = (PAID, NOT_PAID, DIED, NOT_ASKED)
CAVEAT = (
    "A forgery is a wrong program that tries to be paid. A family says what it was written to do; what pays it may be "
    "another thing, so no family is cleared by a 0, and a score of 0 is no proof. A grader died where it ended, raised "
    "or gave no verdict in time, and was not asked where it has no form for a question."
)


@dataclass(frozen=True)
class Ruling:
    """What a grader said of an attempt."""

    attempt: Challenge
    said: str  # PAID, NOT_PAID, DIED or NOT_ASKED
    why: str = ""  # it died


@dataclass(frozen=True)
class Siege:
    """A grader's name, and all that it judged."""

    grader: str
    judged: Sequence[Ruling]

    def of(self, *kinds: str, said: str = "") -> list[Ruling]:
        """Returns the attempts of some families, or with no family all forgeries, of which a grader said this."""
        mine = [case for case in self.judged if case.attempt.family in kinds or (not kinds and case.attempt.is_forgery)]
        return [case for case in mine if not said or case.said == said]

    @property
    def forged(self) -> list[Ruling]:
        """The forgeries that were paid."""
        return self.of(said=PAID)

    def asked(self, *kinds: str) -> int:
        """Returns how many attempts of some families, or forgeries, the grader judged: it has no form for the rest."""
        return len(self.of(*kinds)) - len(self.of(*kinds, said=NOT_ASKED))

    @property
    def misjudged(self) -> list[Ruling]:
        """The controls that were judged wrongly: right programs that were not paid, and wrong ones that were."""
        refused = [case for case in self.of(RIGHT) if case.said in (NOT_PAID, DIED)]
        return refused + self.of(WRONG, said=PAID)

    def summary(self) -> str:
        """Returns the score, and how the controls fared, in one line each."""
        return (
            f"{len(self.forged)} of {self.asked()} forgeries were paid.\n"
            f"Controls: {len(self.of(RIGHT, said=PAID))} of {self.asked(RIGHT)} right programs were paid, "
            f"and {len(self.of(WRONG, said=PAID))} of {self.asked(WRONG)} plain wrong ones."
        )

    def table(self) -> TextTable:
        """Returns the table by family."""
        kinds = {**{family.title: (name,) for name, family in families().items()}, "all": ()}
        rows = [[title, *(str(len(self.of(*names, said=said))) for said in _SAYINGS)] for title, names in kinds.items()]
        return TextTable(["family", *_SAYINGS], rows)

    def markdown(self) -> str:
        """Returns the report with the program of each attempt that was judged wrongly."""
        parts = [f"# Siege of {self.grader}", self.summary().replace("\n", "\n\n"), self.table().markdown(), CAVEAT]
        if self.forged:
            parts.append(self.causes().markdown())
        sections = {
            "Forgeries that were paid": self.forged,
            "Controls that were judged wrongly": self.misjudged,
            "Forgeries at which the grader died": self.of(said=DIED),
        }
        for title, cases in sections.items():
            parts += [f"## {title}"] if cases else []
            for case in cases:
                sources = *case.attempt.earlier, case.attempt.program
                programs = (f"```python\n{source.strip()}\n```" for source in sources)
                parts += [f"### {_heading(case)}", "\n".join(f"- {line}" for line in _about(case)), *programs]
        return "\n\n".join(parts) + "\n"

    def causes(self) -> TextTable:
        """Returns how the families work of which a forgery was paid, and the known defences."""
        paid = {case.attempt.family for case in self.forged}
        rows = [[family.title, family.works, family.defence] for name, family in families().items() if name in paid]
        return TextTable(["family that was paid", "how it works", "the known defence"], rows, left=3)

    def json(self) -> str:
        """Returns the counts and every attempt with what was said of it."""
        families_ = {name: Counter(case.said for case in self.of(name)) for name in (*families(), RIGHT, WRONG)}
        rows = [{**asdict(case.attempt), "said": case.said, "why": case.why} for case in self.judged]
        counts = {"paid": len(self.forged), "asked": self.asked()}
        return json.dumps({"grader": self.grader, **counts, "families": families_, "attempts": rows}, indent=1) + "\n"


def besiege(name: str, command: GraderCommand, attempts: Sequence[Challenge], seconds: float, jobs: int) -> Siege:
    """Has a grader judge attempts, in as many processes at once as there are jobs.

    Args:
      name: of the grader, for the report.
      command: starts its process.
      attempts: what it judges.
      seconds: a verdict may take.
      jobs: processes.

    Raises:
      BadInput: the grader cannot be started.
    """
    local = threading.local()
    started: list[GraderProcess] = []

    def judge(attempt: Challenge) -> Ruling:
        if not hasattr(local, "process"):
            local.process = GraderProcess(command, seconds)
            started.append(local.process)
        return Ruling(attempt, *local.process.ask(questions()[attempt.question], attempt.program, attempt.earlier))

    try:
        with ThreadPoolExecutor(jobs) as threads:
            return Siege(name, list(threads.map(judge, attempts)))  # where one raises, those to come are cancelled
    finally:
        for process in started:
            process.end()


def _heading(judged: Ruling) -> str:
    attempt = judged.attempt
    kind = families()[attempt.family].title if attempt.is_forgery else "control"
    return f"{attempt.name} ({kind}; {attempt.question})"


def _about(judged: Ruling) -> list[str]:
    attempt = judged.attempt
    question = questions()[attempt.question]
    tests = question.get("asserts") or [
        f"{test['stdin']!r} must print {test['stdout']!r}" for test in question["tests"]
    ]
    lines = [f"Question: {question['text']}", f"First test: {tests[0]}"]
    if judged.why:
        lines.append(f"{judged.said.capitalize()}: {judged.why}")
    return lines if attempt.source == OWN else [*lines, f"Reported: {sources()[attempt.source]['url']}"]
