"""What a step's samples cost the host: each row, its line, its text by `json` alone, its bytes; and reading them again.

  python -m bench.samples_cost

The first rows are suites of the paper's size: a prompt of 900 tokens, an answer of 350, eight asserts. The run that
`explain` reads has STEPS steps of STEP_ROWS rows, a sixteenth of a pod's 2,048, with answers of 4,096 tokens. "before"
is the form up to commit d8ac66f: numbers in lists, not compressed; today's `explain` reads that, too. The token ids are
random, so those of a policy become smaller.
"""

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import codea1.game.round
from codea1.game.answers import extract_program, parse_suite
from codea1.game.asserts import Mark, MarkedAssert
from codea1.game.question import Question
from codea1.game.round import QuestionRecord, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.lab.runs.story import most_improved, read_story
from codea1.runs.folder import RunFolder
from codea1.runs.samples import Samples, rows
from codea1.storage import json_lines
from codea1.storage.objects import write_atomically
from codea1.values.verdict import Verdict

ROWS = 256 * 8 + 256 * 8 * 8  # of a step of the paper's: 256 questions, 8 solutions of each, 8 suites on each
STEPS, STEP_ROWS, STEP_SCALE = 20, 128, 16


def main() -> None:
    rng = np.random.default_rng(0)
    calls = "\n".join(f"assert merge([[1, {i}], [2, {i + 5}], [8, 10]]) == [[1, {i + 5}], [8, 10]]" for i in range(8))
    text = f"```python\n{calls}\n```"

    def sample(text: str) -> SampleRecord:
        numbers = rng.standard_normal(350).astype(np.float32)
        prompt_ids, token_ids = (tuple(rng.integers(0, 150_000, size).tolist()) for size in (900, 350))
        return SampleRecord(prompt_ids, text, token_ids, tuple(map(float, numbers)), "stop")

    parsed = parse_suite(text, "merge")
    marked = [MarkedAssert(each, Mark.RIGHT, runs=True, truth=each.answer) for each in parsed.asserts]
    solution = SolutionRecord(0, sample(text), extract_program(text), True)
    solution.suites = [SuiteRecord(n, sample(text), parsed, marked, [Verdict.PASS] * 8) for n in range(63)]
    round_ = Round(1, [QuestionRecord(Question("q", None, "", "", "", "merge"), [solution])])
    texts = dict.fromkeys(("code", "test"), lambda _: "x = 1\n" * 600)
    made = list(rows(round_, texts))
    times = {
        "row": milliseconds(lambda: list(rows(round_, texts)), len(made)),
        "line": milliseconds(lambda: list(map(json_lines.encode, made)), len(made)),
        "line by json": milliseconds(lambda: [json.dumps(json_lines.plain(row)) for row in made], len(made)),
        "parse_suite": milliseconds(lambda: parse_suite(text, "merge"), 1),
    }
    for name, each in times.items():
        print(f"{name:13} {each:.3f} ms, {each * ROWS / 1e3:.1f} s for the {ROWS} rows of a step of the paper's")
    with tempfile.TemporaryDirectory() as folder:
        for name, write in (("before", write_old), ("now", Samples.write)):
            run = RunFolder.open(f"{folder}/{name}", {"method": "code_a1"})
            steps = [long_rows(number) for number in range(1, STEPS + 1)]
            writing = milliseconds_once(
                lambda run=run, write=write, steps=steps: [
                    write(Samples(run), 1 + i, rows) for i, rows in enumerate(steps)
                ]
            )
            size = sum(path.stat().st_size for path in Path(run.samples).iterdir())
            reading = milliseconds_once(lambda run=run: read_story(run, most_improved(run)))
            share, whole = STEP_SCALE / STEPS, STEP_ROWS * STEP_SCALE
            print(
                f"{name:6} {size / STEPS / STEP_ROWS / 1e3:.1f} kB a sample of 4,096 tokens, {size * share / 1e6:.0f} "
                f"GB for 1,000 steps of {whole}; CPU seconds a step: {writing * share / 1e3:.2f} to write, "
                f"{reading * share / 1e3:.2f} to explain"
            )


def long_rows(step: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(step)
    source = Path(codea1.game.round.__file__).read_text() * 2

    def row(number: int) -> dict[str, Any]:
        prompt_ids, token_ids = (rng.integers(0, 151_000, size).tolist() for size in (900, 4096))
        common = {
            **{"step": step, "question_id": f"q/{number // 9}", "solution": 0, "prompt": source[:3000]},
            **{"prompt_ids": prompt_ids, "text": source[number:][:13_500], "token_ids": token_ids},
            **{"log_probs": (-rng.exponential(0.3, 4096).astype(np.float32)).tolist(), "finish_reason": "stop"},
            **{
                "checkpoint": None,
                "reward": 0.5,
                "masked": "",
                "shaped_reward": 0.5,
                "advantage": 0.1,
                "selected": True,
            },
        }
        if number % 9 == 0:
            judged = [{"test": "assert f(1) == 2", "verdict": "pass"}] * 8
            own = {"program": source[number:][:13_500], "program_valid": True, "history": judged, "golden": []}
            return {"player": "code", **common, **own, "reward_parts": {"generated_pass_rate": 0.5}}
        claim = {"source": "assert f(1) == 2", "call": "f(1)", "mark": "right", "detail": "", "truth": "2"}
        own = {"suite": number % 9, "asserts": [{**claim, "verdict": "pass"}] * 8}
        return {"player": "test", **common, **own, "reward_parts": {"validity": 1.0, "adversarial": 0.5}}

    return [row(number) for number in range(STEP_ROWS)]


def write_old(samples: Samples, step: int, rows: list[dict[str, Any]]) -> None:
    write_atomically(samples.path(step), b"".join(map(json_lines.encode, rows)))


def milliseconds(function: Callable[[], object], count: int) -> float:
    """Returns the least CPU time of one of `count` in five calls, after one more."""
    function()
    spent = []
    for _ in range(5):
        started = time.process_time()
        function()
        spent.append((time.process_time() - started) / count * 1e3)
    return min(spent)


def milliseconds_once(function: Callable[[], object]) -> float:
    """Returns the CPU time of one call."""
    started = time.process_time()
    function()
    return (time.process_time() - started) * 1e3


if __name__ == "__main__":
    main()
