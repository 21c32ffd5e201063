"""Evaluations: what was measured of one moment of a run, per question, by name; and as a table."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Table

from codea1.evaluation.statistics import Interval
from codea1.runs.folder import RunFolder
from codea1.runtime.errors import BadInput
from codea1.storage import json_lines
from codea1.storage.objects import read, write_atomically

LABELS = {
    "code_pass_at_1_greedy": "Code pass@1, greedy",
    "test_validity": "Test validity",
    "test_mutation_score": "Test mutation score",
    "test_mutation_score_at_1": "Test mutation@1",
    "test_strict_kill": "Test strict kill",
    "test_mul": "Test Mul",
}
_PASS_AT_K = re.compile(r"code_pass_at_(\d+)")


def write_evaluation(folder: RunFolder, name: str, evaluation: Mapping[str, Any]) -> None:
    """Writes evaluations/<name>.json.

    Args:
      name: "before" and "after" are what the report compares.
      evaluation: {"step": int, "split": str, "questions": int, "question_ids": [str, ...], "metrics": {metric: {"mean":
        float, "low": float, "high": float, "per_question": [float, ...]}}}. Metrics are shares between 0 and 1. Entry i
        of every per_question list is the question of entry i of question_ids, which old evaluations lack; NaN, written
        as null, means undefined for that question. A metric that is a product of means over questions has the list of
        its factors in place of each float.
    """
    write_atomically(folder.evaluations / f"{name}.json", json.dumps(json_lines.plain(evaluation), indent=1) + "\n")


def read_evaluation(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """Returns what `write_evaluation` was given, or None where there is no such file.

    Raises:
      BadInput: the file is not an evaluation.
    """
    path = folder.evaluations / f"{name}.json"
    try:
        evaluation = json.loads(read(path))
        for key in ("step", "split", "questions"):
            evaluation[key]
        for metric in evaluation["metrics"].values():
            interval(metric)
            if len(per_question(metric)) != len(evaluation.get("question_ids") or metric["per_question"]):
                raise ValueError("has not one value for each of question_ids")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not an evaluation: {type(error).__name__} {error}.") from None
    return evaluation


def interval(metric: Mapping[str, Any]) -> Interval:
    """Returns a metric's mean and 95 % interval; NaN for null."""
    return Interval(*(float(np.float64(metric[key])) for key in Interval._fields))


def per_question(metric: Mapping[str, Any]) -> np.ndarray:
    """Returns a metric's values [questions] or [questions, factors]; NaN for null."""
    return np.array(metric["per_question"], np.float64)


def label(metric: str) -> str:
    """Returns what a metric is called in a table: its own name where it is not known."""
    pass_at_k = _PASS_AT_K.fullmatch(metric)
    return f"Code pass@{pass_at_k[1]}" if pass_at_k else LABELS.get(metric, metric)


def evaluation_table(evaluation: Mapping[str, Any], title: str) -> Table:
    """Returns one evaluation's metrics for a terminal, as percentages."""
    table = Table("metric", "%", "95 % interval", title=title, title_justify="left")
    for name, metric in evaluation["metrics"].items():
        bounds = f"[{100 * metric['low']:.1f}, {100 * metric['high']:.1f}]"
        table.add_row(label(name), f"{100 * metric['mean']:.1f}", bounds)
    return table
