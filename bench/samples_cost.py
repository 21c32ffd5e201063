"""What a step's samples cost the host, per row: the row, its line, and its line by `json` alone, which it was before.

  python -m bench.samples_cost

A row is a suite of the paper's size: a prompt of 900 tokens, an answer of 350, eight asserts.
"""

import json
import time
from collections.abc import Callable

import numpy as np

from codea1.game.answers import extract_program, parse_suite
from codea1.game.marks import Mark, MarkedAssert
from codea1.game.question import Question
from codea1.game.round import QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.game.round_views import rows
from codea1.storage import json_lines
from codea1.values.verdict import Verdict

ROWS = 256 * 8 + 256 * 8 * 8  # of a step of the paper's: 256 questions, 8 solutions of each, 8 suites on each


def main() -> None:
    rng = np.random.default_rng(0)
    calls = "\n".join(f"assert merge([[1, {i}], [2, {i + 5}], [8, 10]]) == [[1, {i + 5}], [8, 10]]" for i in range(8))
    text = f"```python\n{calls}\n```"

    def sample(text: str) -> SampleRecord:
        numbers = rng.standard_normal(350).astype(np.float32)
        prompt_ids, token_ids = (tuple(rng.integers(0, 150_000, size).tolist()) for size in (900, 350))
        return SampleRecord("x = 1\n" * 600, prompt_ids, text, token_ids, tuple(map(float, numbers)), "stop")

    parsed = parse_suite(text, "merge")
    marked = [MarkedAssert(each, Mark.RIGHT, runs=True, truth=each.answer) for each in parsed.asserts]
    solution = SolutionRecord(0, sample(text), extract_program(text), True)
    solution.suites = [SuiteRecord(n, sample(text), parsed, marked, [Verdict.PASS] * 8) for n in range(63)]
    round_ = Round(1, [QuestionRecord(Question("q", None, "", "", "", "merge"), [solution])])
    made = list(rows(round_))
    times = {
        "row": milliseconds(lambda: list(rows(round_)), len(made)),
        "line": milliseconds(lambda: list(map(json_lines.encode, made)), len(made)),
        "line by json": milliseconds(lambda: [json.dumps(json_lines.plain(row)) for row in made], len(made)),
        "parse_suite": milliseconds(lambda: parse_suite(text, "merge"), 1),
    }
    for name, each in times.items():
        print(f"{name:13} {each:.3f} ms, {each * ROWS / 1e3:.1f} s for the {ROWS} rows of a step of the paper's")


def milliseconds(function: Callable[[], object], count: int) -> float:
    """Returns the least CPU time of one of `count` in five calls, after one more."""
    function()
    spent = []
    for _ in range(5):
        started = time.process_time()
        function()
        spent.append((time.process_time() - started) / count * 1e3)
    return min(spent)


if __name__ == "__main__":
    main()
