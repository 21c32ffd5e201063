"""Samples: what was generated, executed and rewarded in each step, one row per sample.

samples/step_000001.jsonl.zst   a JSON object a line, compressed; tokens in Base64

prompt_ids and token_ids are little-endian int32, log_probs little-endian float32, which is what the sampler computes.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from etils import epath

from codea1.game.asserts import MarkedAssert
from codea1.game.calls import Call, source_of, write_test
from codea1.game.round import GradedTest, Round, SampleRecord, SolutionRecord, SuiteRecord
from codea1.runs.folder import RunFolder
from codea1.runs.forms import fits
from codea1.runtime.errors import BadInput
from codea1.storage import json_lines
from codea1.storage.checksums import Checksum, checksum_of
from codea1.storage.objects import names, remove, write_atomically
from codea1.values import decode_exact
from codea1.values.verdict import Verdict

MAX_SHOWN_BYTES = 10_000  # of an encoded value; larger ones are shown by their size

Row = dict[str, Any]

_TOKENS = {"prompt_ids": "<i4", "token_ids": "<i4", "log_probs": "<f4"}  # columns with an entry per token
_SHARE = (float, None)
_GRADED = ([{"test": str, "verdict": (str, None)}], ...)
_ASSERT = {
    **{"source": str, "mark": str, "form": (str, ...)},
    **dict.fromkeys(("detail", "call", "truth", "verdict"), (str, None)),
}
_ROW = {  # of `rows`, as far as people read it
    **{"question_id": str, "solution": int, "selected": bool, "masked": str},
    **{"prompt": (str, ...), "text": (str, ...), "reward": _SHARE, "shaped_reward": (*_SHARE, ...), "advantage": float},
}
_CODE_PARTS = dict.fromkeys(("generated_pass_rate", "history_pass_rate", "golden_pass_rate"), (*_SHARE, ...))
_FORMS = (
    _ROW
    | {"player": "code", "program": (str, ...), **dict.fromkeys(("program_valid", "passes_check"), (bool, None, ...))}
    | {"history": _GRADED, "golden": _GRADED, "reward_parts": {"suites": ([_SHARE], ...), **_CODE_PARTS}},
    _ROW | {"player": "test", "suite": int, "asserts": ([_ASSERT], ...), "reward_parts": {str: _SHARE}},
)


def rows(round_: Round, transcripts: Mapping[str, Callable[[Sequence[int]], str]]) -> Iterator[Row]:
    """Returns JSON-serialisable rows, each solution followed by its suites.

    Common fields: step, player ("code" or "test"), question_id, solution (m), prompt, prompt_ids, text, token_ids,
    log_probs, finish_reason, reward (None when masked), masked (why), reward_parts, shaped_reward, advantage, selected.
    Code rows add program, fenced, program_valid, test_prompt_fits, passes_check (by the check script; None: not run),
    history and golden; test rows add suite (n), fenced and asserts.

    The prompts' texts are made by `transcripts`, of each player, before this returns: no other thread than the caller's
    may use a tokenizer. The rows are made as they are read.
    """
    prompts = {("code", solution.sample.prompt_ids) for solution in round_.solutions}
    prompts |= {("test", suite.sample.prompt_ids) for suite in round_.suites}
    return _rows(round_, {(player, ids): transcripts[player](ids) if ids else "" for player, ids in prompts})


def _rows(round_: Round, prompts: Mapping[tuple[str, tuple[int, ...]], str]) -> Iterator[Row]:
    for question in round_.questions:
        for solution in question.solutions:
            head = {
                "step": round_.step,
                "player": "code",
                "question_id": question.question.id,
                "solution": solution.index,
            }
            yield {
                **head,
                **_sample(solution.sample, prompts["code", solution.sample.prompt_ids]),
                "program": solution.program.source,
                "fenced": solution.program.fenced,
                "program_valid": solution.program_valid,
                "test_prompt_fits": solution.test_prompt_fits,
                "passes_check": solution.passes_check,
                "history": [_graded_test(graded) for graded in solution.history],
                "golden": [_graded_test(graded) for graded in solution.golden],
                **_reward(solution),
            }
            for suite in solution.suites:
                verdicts = iter(suite.verdicts)
                yield {
                    **head,
                    "player": "test",
                    "suite": suite.index,
                    **_sample(suite.sample, prompts["test", suite.sample.prompt_ids]),
                    "fenced": suite.parsed.fenced,
                    "asserts": [_assert(item, next(verdicts) if item.runs else None) for item in suite.marked],
                    **_reward(suite),
                }


def _sample(sample: SampleRecord, prompt: str) -> Row:
    return {
        "prompt": prompt,
        "prompt_ids": [int(token) for token in sample.prompt_ids],
        "text": sample.text,
        "token_ids": [int(token) for token in sample.token_ids],
        "log_probs": [float(value) for value in sample.log_probs],
        "finish_reason": sample.finish_reason,
    }


def _reward(record: SolutionRecord | SuiteRecord) -> Row:
    parts = asdict(record.reward) if record.reward else {"total": None, "masked": ""}
    parts.pop("terms", None)
    return {
        "reward": parts.pop("total"),
        "masked": parts.pop("masked"),
        "reward_parts": parts,
        "shaped_reward": record.shaped_reward,
        "advantage": record.advantage,
        "selected": record.selected,
    }


def _assert(item: MarkedAssert, verdict: Verdict | None) -> Row:
    return {
        "source": item.parsed.source,
        "call": None if item.parsed.call is None else _shown_call(item.parsed.call),
        "form": "" if item.parsed.call is None else item.parsed.call.form,
        "mark": item.mark.value,
        "detail": item.detail,
        "truth": None if item.truth is None else _shown(item.truth),
        "verdict": None if verdict is None else verdict.value,
    }


def _graded_test(graded: GradedTest) -> Row:
    call = graded.test.call
    source = write_test(_shown_call(call), _shown(graded.test.expected), call.form)
    return {"test": source, "verdict": graded.verdict.value}


def _shown_call(call: Call) -> str:
    if len(call.arguments) > MAX_SHOWN_BYTES:
        return f"{call.function}(<{len(call.arguments)} bytes>)"
    return call.text


def _shown(value: bytes) -> str:
    return source_of(decode_exact(value)) if len(value) <= MAX_SHOWN_BYTES else f"<{len(value)} bytes>"


class Samples:
    """The per-sample rows of one run, a file per step."""

    def __init__(self, folder: RunFolder, keep: int = 0):
        """Opens those of a run, of which `keep` steps are kept, the newest; 0: all."""
        self._directory, self._keep = folder.samples, keep
        self.written: dict[str, Checksum] = {}  # files that were written through this object, by name in the run

    def write(self, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Writes all rows of a step at once, over any that are there, and removes what is no longer kept.

        Args:
          rows: plain values, numpy ones included; NaN and infinities become null, except in log_probs.
        """
        content = json_lines.compressed(map(_packed, rows))
        write_atomically(self.path(step), content)
        self.written[f"{self._directory.name}/{self.path(step).name}"] = checksum_of(content)
        for earlier in self.steps() if self._keep else ():
            if earlier <= step - self._keep:
                self._remove(earlier)

    def steps(self) -> list[int]:
        """Returns the steps that have rows, in order."""
        matches = (re.fullmatch(r"step_(\d+)\.jsonl\.zst", name) for name in names(self._directory))
        return sorted(int(match[1]) for match in matches if match)

    def read(self, step: int, tokens: bool = True) -> Iterator[dict[str, Any]]:
        """Yields the rows of a step as they were written, one after another; none where the step has no file.

        Args:
          tokens: whether with prompt_ids, token_ids and log_probs, which take longer to decode than all the rest.

        Raises:
          BadInput: the file is damaged, or a line is not a JSON object.
        """
        path = self.path(step)
        for number, (_, row) in enumerate(json_lines.whole_lines(path), start=1):
            for name in _TOKENS.keys() & row.keys():
                if not tokens:
                    del row[name]
                else:
                    try:
                        row[name] = np.frombuffer(base64.b64decode(row[name], validate=True), _TOKENS[name]).tolist()
                    except (TypeError, ValueError):
                        raise BadInput(f"{path}, line {number}: {name} is not Base64 of {_TOKENS[name]}.") from None
            yield row

    def for_people(self, step: int) -> Iterator[dict[str, Any]]:
        """Yields the rows of a step without what is per token. Raises BadInput: one is not what codea1 writes."""
        for number, row in enumerate(self.read(step, tokens=False), start=1):
            for name, form in _FORMS[row.get("player") == "test"].items():
                if not fits(row.get(name, ...), form):
                    file = f"{self._directory}, step {step}, line {number}"
                    raise BadInput(f"{file}: {name} is not what a row of samples has there.")
            yield row

    def remove_after(self, step: int) -> None:
        """Removes the rows of every step after `step`, from which the run continues."""
        for later in self.steps():
            if later > step:
                self._remove(later)

    def path(self, step: int) -> epath.Path:
        """Returns the file of a step."""
        return self._directory / f"step_{step:06d}.jsonl.zst"

    def _remove(self, step: int) -> None:
        remove(self.path(step))
        self.written.pop(f"{self._directory.name}/{self.path(step).name}", None)


def _packed(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = {name: np.asarray(row[name], dtype) for name, dtype in _TOKENS.items() if name in row}
    return {**row, **{name: base64.b64encode(column.tobytes()).decode() for name, column in columns.items()}}
