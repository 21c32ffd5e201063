"""Run folders with made-up configs and evaluations, for tests of what reads runs."""

from pathlib import Path
from typing import Any

from codea1.evaluation.result_files import write_evaluation
from codea1.evaluation.statistics import bootstrap_interval
from codea1.runs.folder import RunFolder

Values = dict[str, list]  # metric name to one value, or pair of values, per question


def config(seed: int = 0, method: str = "code_a1", shape: str = "", **fields: Any) -> dict[str, Any]:
    """The part of a config by which runs are told apart; `fields` are dotted, with "__" for a dot."""
    demo = not shape
    own: dict[str, Any] = {
        "seed": seed,
        "method": method,
        "frozen": "",
        "steps": 40,
        "game": {"alpha": 0.3 if demo else 0.5, "reward": "strict_tests" if demo else "official", "mistake_book": True},
        "data": {"test": {"source": "procedural" if demo else "test.parquet"}, "static_tests": ""},
        "code": {"model": f"runs/sft_{seed}/model" if demo else "models/coder", "shape": shape},
        "test": {"model": f"runs/sft_{seed}/model" if demo else "models/coder", "shape": shape},
        "mesh": {"topology": "" if demo else "v5e-16"},
    }
    for name, value in fields.items():
        *path, last = name.split("__")
        section = own
        for key in path:
            section = section[key]
        section[last] = value
    return own


def evaluation(step: int, values: Values, split: str = "test") -> dict[str, Any]:
    metrics = {name: {**bootstrap_interval(each)._asdict(), "per_question": each} for name, each in values.items()}
    questions = len(next(iter(values.values())))
    ids = [f"q/{index}" for index in range(questions)]
    return {"step": step, "split": split, "questions": questions, "question_ids": ids, "metrics": metrics}


def make_run(
    folder: Path, config: dict[str, Any], before: Values | None = None, after: Values | None = None
) -> RunFolder:
    """Writes a run folder, with the two evaluations that training makes."""
    run = RunFolder.open(str(folder), config)
    if before:
        write_evaluation(run, "before", evaluation(0, before))
    if after:
        write_evaluation(run, "after", evaluation(40, after))
    return run
