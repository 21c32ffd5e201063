"""The report of a run as one page that opens anywhere and loads nothing: tables, warnings, its samples, and curves.

The samples open on programs that have the whole reward and fail their check script, where that was run.

What policies wrote is data in the page and never markup: it is in JSON whose every `<` is escaped, and becomes text.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment

from codea1.game.asserts import Mark
from codea1.game.outcomes import FAILED
from codea1.game.rewards import is_whole
from codea1.lab.report.figures import PANELS, Rows, points, smoothed, smoothing_width
from codea1.lab.report.tables import LEGEND
from codea1.runs.samples import Samples

MAX_QUESTIONS = 24  # of a step, whose samples are in the page
_KILLS, _WRONG = "bad", "warn"  # classes of an assert that kills, and of one whose answer is wrong

_TEMPLATE = Environment(autoescape=True).from_string(Path(__file__).with_suffix(".html").read_text())


def page(
    name: str,
    rows: Rows,
    table: str,
    title: str,
    warnings: Iterable[str],
    samples: Samples,
) -> str:
    """Returns the page.

    Args:
      name: of the run.
      rows: its metrics.
      table: in HTML; empty where nothing was measured.
      title: what that table is of.
      warnings: sentences.
      samples: of its steps; the page has those of the first, of the last, and of that with most programs that are paid
        but wrong.
    """
    steps = samples.steps()
    worst = [row for row in rows if row.get("code/paid_but_wrong") and row["step"] in steps]
    most = [max(worst, key=lambda row: row["code/paid_but_wrong"])["step"]] if worst else []
    shown = sorted({*steps[:1], *most, *steps[-1:]})
    questions = [question for step in shown for question in _questions(step, samples.for_people(step))]
    data = json.dumps({"panels": _panels(rows), "questions": questions}, allow_nan=False).replace("<", "\\u003c")
    return _TEMPLATE.render(name=name, warnings=warnings, title=title, table=table, legend=LEGEND.html(), data=data)


def _panels(rows: Rows) -> list[dict[str, Any]]:
    drawn = []
    for panel in PANELS:
        if panel.is_drawn(rows):
            series, width = [], 1
            for line in panel.series:
                steps, values = points(rows, line.metric)
                if len(steps):
                    window = 1 if panel.measured else smoothing_width(len(steps))
                    smooth, width = smoothed(values, window).tolist() if window > 1 else [], max(window, width)
                    drawn_as = {"label": line.label, "color": line.color, "smoothed": smooth}
                    series.append(drawn_as | {"steps": steps.tolist(), "values": values.tolist()})
            kind = {"share": panel.share, "measured": panel.measured, "width": width}
            drawn.append({"title": panel.title, **kind, "series": series})
    return drawn


def _questions(step: int, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns questions of a step with solutions and suites, first those with a program that is paid but wrong."""
    by_id: dict[str, dict[str, Any]] = {}
    for row in rows:
        id = row["question_id"]
        question = by_id.setdefault(id, {"id": id, "step": step, "prompt": "", "solutions": {}})
        solution = question["solutions"].setdefault(
            row["solution"],
            {
                **{"number": row["solution"], "text": "", "reward": None, "advantage": None, "suites": []},
                **{"right": None, "paid": False},
            },
        )
        if row["player"] == "code":
            question["prompt"] = row.get("prompt", "")
            solution |= {"text": row.get("text", ""), "reward": row["reward"], "advantage": row["advantage"]}
            solution |= {"right": row.get("passes_check"), "paid": is_whole(row["reward"])}
        else:
            asserts = row.get("asserts") or ()
            lines = [(_line(item), _kind(item)) for item in asserts] or [(row.get("text", ""), "")]
            kinds = {kind for _, kind in lines}
            validity = row["reward_parts"].get("validity")
            suite = {"number": row["suite"], "reward": row["reward"], "validity": validity, "lines": lines}
            solution["suites"].append(suite | {"kills": _KILLS in kinds, "wrong": _WRONG in kinds})
    questions = [question | {"solutions": list(question["solutions"].values())} for question in by_id.values()]

    def is_fooled(question: Mapping[str, Any]) -> bool:
        return any(solution["paid"] and solution["right"] is False for solution in question["solutions"])

    return sorted(questions, key=is_fooled, reverse=True)[:MAX_QUESTIONS]


def _kind(item: Mapping[str, Any]) -> str:
    """Returns the class of an assert: right and failed by the program, or with a wrong answer; else none."""
    if item["mark"] == Mark.RIGHT:
        return _KILLS if item["verdict"] in FAILED else ""
    return _WRONG if item["mark"] == Mark.WRONG_ANSWER else ""


def _line(item: Mapping[str, Any]) -> str:
    """Returns an assert with its verdict on the program, and what the ground truth says of it."""
    asked = f"{item.get('form', '')} {item['call']}".strip()
    truth = f"  # {asked} is {item['truth']}" if item["truth"] is not None else ""
    return f"{item['verdict'] or '-':8} {item['mark']:14} {item['source']}{truth}"
