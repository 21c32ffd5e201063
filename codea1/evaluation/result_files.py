"""Evaluations as files: what was measured of one moment of a run or of a model, per question, by name."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from codea1.evaluation.statistics import Interval, bootstrap_interval
from codea1.runs.folder import RunFolder
from codea1.runs.forms import NAME, fits
from codea1.runtime.errors import BadInput
from codea1.storage import json_lines
from codea1.storage.objects import read, remove, write_atomically

_FORM = {"step": int, "split": str, "questions": int, "question_ids": [str], "metrics": dict}
_SHARE = (float, None)
_METRIC = {**dict.fromkeys(Interval._fields, _SHARE), "per_question": ([_SHARE], [[_SHARE]])}
PerQuestion = dict[str, list]  # metric name to one value per question: a share, or a pair of shares to be multiplied


def summary(measured: PerQuestion, step: int, split: str, question_ids: Sequence[str]) -> dict[str, Any]:
    """Returns the evaluation as it is written and read: means with 95 % bootstrap intervals over questions.

    `question_ids` are those of every list in `measured`, by which evaluations are compared.
    """
    metrics = {
        name: {**bootstrap_interval(values)._asdict(), "per_question": values} for name, values in measured.items()
    }
    ids = list(question_ids)
    return {"step": step, "split": split, "questions": len(ids), "question_ids": ids, "metrics": metrics}


def require_writable(folder: RunFolder) -> None:
    """Raises BadInput and StorageFailed as `write_evaluation` would: before what takes hours."""
    folder.require_inside(folder.evaluations)
    write_atomically(folder.evaluations / ".probe", b"")
    remove(folder.evaluations / ".probe")


def write_evaluation(folder: RunFolder, name: str, evaluation: Mapping[str, Any]) -> epath.Path:
    """Writes evaluations/<name>.json, and returns that file.

    Args:
      name: "before" and "after" are what the report compares.
      evaluation: {"step": int, "split": str, "questions": int, "question_ids": [str, ...], "metrics": {metric: {"mean":
        float, "low": float, "high": float, "per_question": [float, ...]}}}. Metrics are shares between 0 and 1. Entry i
        of every per_question list is the question of entry i of question_ids; NaN, written as null, means undefined for
        that question. A metric that is a product of means over questions has the list of its factors instead of each
        float.

    Raises BadInput: see `RunFolder.require_inside`.
    """
    folder.require_inside(folder.evaluations)
    path = folder.evaluations / f"{name}.json"
    write_atomically(path, json.dumps(json_lines.plain(evaluation), indent=1) + "\n")
    return path


def read_evaluation(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """Returns what `write_evaluation` was given, or None where there is no such file.

    Raises:
      BadInput: the file is not an evaluation.
    """
    path = folder.evaluations / f"{name}.json"
    try:
        evaluation = json_lines.loads(read(path))
        for key in _FORM:
            evaluation[key]
        if not fits(evaluation, _FORM):
            raise ValueError(f"{', '.join(_FORM)} are of another kind")
        for name in (evaluation["split"], *evaluation["metrics"]):
            if not NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name")
        for metric in evaluation["metrics"].values():
            if not fits(metric, _METRIC):
                raise ValueError("a metric lacks a mean, its bounds or its values, or one is no number")
            if len(per_question(metric)) != len(evaluation["question_ids"]):
                raise ValueError("has not one value for each of question_ids")
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInput(f"{path} is not an evaluation: {type(error).__name__} {error}.") from None
    return evaluation


def interval_of(metric: Mapping[str, Any]) -> Interval:
    """Returns a metric's mean and 95 % interval; NaN for null."""
    return Interval(*(float(np.float64(metric[key])) for key in Interval._fields))


def per_question(metric: Mapping[str, Any]) -> np.ndarray:
    """Returns a metric's values [questions] or [questions, factors]; NaN for null."""
    return np.array(metric["per_question"], np.float64)
