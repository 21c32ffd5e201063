"""CodeT's published samples in the forms that `codea1.benchmark given` takes.

  python -m bench.codet CODE.jsonl TESTS.jsonl HumanEval.jsonl OUT

The first two are microsoft/CodeT's CodeT/data/generated_data/hmeval_codegen16B_..._code_solution.jsonl and
..._test_case.jsonl: a prompt, which is the task's without its examples, and 100 samples. Solutions are cut, and asserts
found, as CodeT's src/postprocess.py does it. OUT gets completions.jsonl and suites.jsonl.
"""

import ast
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from codea1.data.rows import file_rows

STOPS = ("\nclass", "\ndef", "\n#", "\nif", "\nprint")


def cut(text: str) -> str:
    """Returns what stands before the first of STOPS."""
    return text[: min((at for at in map(text.find, STOPS) if at >= 0), default=len(text))]


def asserts(sample: str, entry_point: str) -> Iterator[str]:
    """Yields the asserts of a sample, which goes on where `assert ` ends, that name the entry point and parse."""
    for part in f"assert {sample}".split("assert "):
        test = cut(f"assert {part}".strip()).strip()
        if entry_point in part and part.strip():
            try:
                ast.parse("try:\n    " + test.replace("\n", "\n    ") + "\nexcept:\n    pass\n")
                yield test
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                pass


def main(code: str, tests: str, tasks: str, out: str) -> None:
    warnings.simplefilter("ignore", SyntaxWarning)
    by_opening = {opening(row["prompt"]): row["task_id"] for _, row in file_rows(tasks)}
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "completions.jsonl").open("w") as written:
        for _, row in file_rows(code):
            task = by_opening[opening(row["prompt"])]
            for sample in row["samples"]:
                written.write(json.dumps({"task_id": task, "solution": row["prompt"] + cut(sample)}) + "\n")
    with (folder / "suites.jsonl").open("w") as written:
        for _, row in file_rows(tests):
            name = opening(row["prompt"])[0].removeprefix("def ").partition("(")[0]
            for sample in row["samples"]:
                found = list(asserts(sample, name))
                written.write(json.dumps({"task_id": by_opening[opening(row["prompt"])], "tests": found}) + "\n")


def opening(prompt: str) -> tuple[str, str]:
    """Returns the first line of the last function that a prompt begins, and the line after it."""
    lines = prompt.splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("def "))
    return lines[last], lines[last + 1].strip()


if __name__ == "__main__":
    main(*sys.argv[1:])
