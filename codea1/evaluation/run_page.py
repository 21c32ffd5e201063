"""The report of a run as one page that opens anywhere and loads nothing: curves, tables, warnings, and its samples.

What policies wrote is data in the page and never markup: it is in JSON whose every `<` is escaped, and becomes text.
"""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from codea1.evaluation.figures import PANELS, Rows, points, smoothed, smoothing_width
from codea1.runs.samples import Samples

MAX_QUESTIONS = 24  # of a step, whose samples are in the page

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --ink: light-dark(#222, #ddd); --faint: light-dark(#ddd, #444);
  --back: light-dark(#fff, #1b1d22) }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1240px; margin: 1.5rem auto; padding: 0 1rem; color: var(--ink);
  background: var(--back) }
table { border-collapse: collapse }
th, td { padding: .2rem .8rem; text-align: right; border-bottom: 1px solid var(--faint) }
th:first-child, td:first-child { text-align: left } tr:first-child { font-weight: bold }
.warning { border-left: 4px solid #d9622b; padding-left: .8rem }
#panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { font-weight: 600 } svg { width: 100%; height: auto; display: block }
svg text { fill: var(--ink); font-size: 11px } .key { font-size: .85rem } .key b { font-weight: normal }
pre { overflow-x: auto; background: light-dark(#f4f4f4, #24272e); padding: .6rem; margin: .3rem 0 }
.sample { border-top: 1px solid var(--faint); padding: .4rem 0 } .suite { margin-left: 2rem }
select, button { font: inherit; max-width: 100% }
</style>
"""

_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const escaped = char => `\\u{${char.codePointAt(0).toString(16)}}`;  // controls, and what turns the reading order
const make = (name, attributes, parent, text) => {
  const svg = ["svg", "path", "line", "text", "circle", "rect"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = String(text).replace(/[^\\n\\t\\P{C}]/gu, escaped);
  if (parent) parent.append(node);
  return node;
};
const W = 380, H = 210, LEFT = 44, RIGHT = 8, TOP = 8, BOTTOM = 22;
const short = value => Number(value.toPrecision(3)).toString();
for (const panel of data.panels) {
  const figure = make("figure", {}, document.getElementById("panels"));
  make("figcaption", {}, figure, panel.title);
  const steps = panel.series.flatMap(one => one.steps), values = panel.series.flatMap(one => one.values);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  let [low, high] = panel.share ? [0, 1] : [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const x = step => LEFT + (W - LEFT - RIGHT) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = value => TOP + (H - TOP - BOTTOM) * (high - value) / (high - low);
  const svg = make("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel.title}, figure);
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const value = low + part * (high - low);
    make("line", {x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), stroke: "var(--faint)"}, svg);
    make("text", {x: LEFT - 4, y: y(value) + 4, "text-anchor": "end"}, svg, short(value));
  }
  for (const step of new Set([first, Math.round((first + last) / 2), last]))
    make("text", {x: x(step), y: H - 6, "text-anchor": step === last ? "end" : step === first ? "start" : "middle"},
      svg, step);
  const path = (one, values) => one.steps.map((step, i) => `${i ? "L" : "M"}${x(step)},${y(values[i])}`).join("");
  for (const one of panel.series) {
    const smooth = one.smoothed.length > 0;
    make("path", {d: path(one, one.values), fill: "none", stroke: one.color, opacity: smooth ? 0.3 : 1}, svg);
    if (smooth) make("path", {d: path(one, one.smoothed), fill: "none", stroke: one.color, "stroke-width": 2}, svg);
    if (panel.measured)
      one.steps.forEach((step, i) => make("circle", {cx: x(step), cy: y(one.values[i]), r: 3, fill: one.color}, svg));
  }
  const cursor = make("line", {y1: TOP, y2: H - BOTTOM, stroke: "var(--ink)", visibility: "hidden"}, svg);
  const key = make("div", {class: "key"}, figure);
  const say = step => {
    key.replaceChildren();
    if (step !== undefined) make("b", {}, key, `step ${step}  `);
    for (const one of panel.series) {
      make("b", {style: `color: ${one.color}`}, key, "\\u25cf ");
      const i = one.steps.indexOf(step);
      make("b", {}, key, `${one.label}${i < 0 ? "" : " " + short(one.values[i])}  `);
    }
  };
  say();
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), at = (event.clientX - box.left) * W / box.width;
    const step = steps.reduce((best, each) => Math.abs(x(each) - at) < Math.abs(x(best) - at) ? each : best, first);
    for (const [name, value] of [["x1", x(step)], ["x2", x(step)], ["visibility", "visible"]])
      cursor.setAttribute(name, value);
    say(step);
  });
  svg.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); say(); });
}
const chooser = document.getElementById("question"), place = document.getElementById("samples");
data.questions.forEach((one, i) => make("option", {value: i}, chooser, `step ${one.step}: ${one.id}`));
const number = value => value === null || value === undefined ? "-" : short(value);
const show = () => {
  place.replaceChildren();
  const one = data.questions[chooser.value];
  if (!one) return;
  make("pre", {}, place, one.prompt);
  for (const solution of one.solutions) {
    const node = make("div", {class: "sample"}, place);
    const earned = `reward ${number(solution.reward)}, advantage ${number(solution.advantage)}`;
    make("b", {}, node, `solution ${solution.number}: ${earned}`);
    make("pre", {}, node, solution.text);
    for (const suite of solution.suites) {
      const own = make("div", {class: "suite"}, node);
      make("div", {}, own, `suite ${suite.number}: reward ${number(suite.reward)}, validity ${number(suite.validity)}`);
      make("pre", {}, own, suite.lines.join("\\n"));
    }
  }
};
const turn = by => {
  const count = data.questions.length;
  if (count) chooser.value = (Number(chooser.value) + by + count) % count;
  show();
};
chooser.addEventListener("change", show);
document.getElementById("before").addEventListener("click", () => turn(-1));
document.getElementById("next").addEventListener("click", () => turn(1));
show();
"""


def page(
    name: str,
    rows: Rows,
    table: Iterable[tuple[Sequence[str], bool]],
    title: str,
    warnings: Iterable[str],
    samples: Samples,
) -> str:
    """Returns the page.

    Args:
      name: of the run.
      rows: its metrics.
      table: the rows of a table, its head first, and whether the last cell of each is bold.
      title: what that table is of.
      warnings: sentences.
      samples: of its steps; the page has those of the first and the last.
    """
    steps = samples.steps()
    shown = dict.fromkeys((*steps[:1], *steps[-1:]))
    questions = [each for step in shown for each in _questions(step, samples.for_people(step))]
    data = json.dumps({"panels": _panels(rows), "questions": questions}, allow_nan=False).replace("<", "\\u003c")
    escaped = ((list(map(html.escape, row)), is_bold) for row, is_bold in table)
    cells = ("<td>".join(["", *row[:-1], f"<b>{row[-1]}</b>" if is_bold else row[-1]]) for row, is_bold in escaped)
    parts = [
        f"{_HEAD}<title>{html.escape(name)}</title></head><body><h1>{html.escape(name)}</h1>",
        *(f'<p class="warning">{html.escape(warning)}</p>' for warning in warnings),
        f"<p>{html.escape(title)}</p><table>",
        *(f"<tr>{row}</tr>" for row in cells),
        "</table><h2>Curves</h2><div id=panels></div><h2>Samples</h2>",
        "<p><button id=before>&larr;</button> <select id=question></select> <button id=next>&rarr;</button></p>",
        f'<div id=samples></div><script type="application/json" id=data>{data}</script>',
        f"<script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts)


def _panels(rows: Rows) -> list[dict[str, Any]]:
    drawn = []
    for panel in PANELS:
        if panel.is_drawn(rows):
            series = []
            for each in panel.series:
                steps, values = points(rows, each.metric)
                if len(steps):
                    smooth = [] if panel.measured else smoothed(values, smoothing_width(len(steps))).tolist()
                    drawn_as = {"label": each.label, "color": each.color, "smoothed": smooth}
                    series.append(drawn_as | {"steps": steps.tolist(), "values": values.tolist()})
            drawn.append({"title": panel.title, "share": panel.share, "measured": panel.measured, "series": series})
    return drawn


def _questions(step: int, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the first questions of a step with their solutions and suites."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        id = row["question_id"]
        if id not in found and len(found) == MAX_QUESTIONS:
            continue
        question = found.setdefault(id, {"id": id, "step": step, "prompt": "", "solutions": {}})
        solution = question["solutions"].setdefault(
            row["solution"], {"number": row["solution"], "text": "", "reward": None, "advantage": None, "suites": []}
        )
        if row["player"] == "code":
            question["prompt"] = row.get("prompt", "")
            solution |= {"text": row.get("text", ""), "reward": row["reward"], "advantage": row["advantage"]}
        else:
            lines = [_line(each) for each in row.get("asserts") or ()]
            validity = row["reward_parts"].get("validity")
            suite = {"number": row["suite"], "reward": row["reward"], "validity": validity}
            solution["suites"].append(suite | {"lines": lines or [row.get("text", "")]})
    return [question | {"solutions": list(question["solutions"].values())} for question in found.values()]


def _line(item: Mapping[str, Any]) -> str:
    """Returns an assert with its verdict on the program, and what the ground truth says of it."""
    asked = f"{item.get('form', '')} {item['call']}".strip()
    truth = f"  # {asked} is {item['truth']}" if item["truth"] is not None else ""
    return f"{item['verdict'] or '-':8} {item['mark']:14} {item['source']}{truth}"
