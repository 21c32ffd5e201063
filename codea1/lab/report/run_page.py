"""The report of a run as one page that opens anywhere and loads nothing: tables, warnings, its samples, and curves.

The samples open on programs that have the whole reward and fail their check script, where that was run.

What policies wrote is data in the page and never markup: it is in JSON whose every `<` is escaped, and becomes text.
"""

import html
import json
from collections.abc import Iterable, Mapping
from typing import Any

from codea1.game.asserts import Mark
from codea1.game.rewards import FAILED, is_whole
from codea1.lab.report.figures import PANELS, Rows, points, smoothed, smoothing_width
from codea1.lab.report.tables import LEGEND
from codea1.runs.samples import Samples

MAX_QUESTIONS = 24  # of a step, whose samples are in the page
_KILLS, _WRONG = "bad", "warn"  # classes of an assert that kills, and of one whose answer is wrong

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
th:first-child, td:first-child { text-align: left }
.warning { border-left: 4px solid #d9622b; padding-left: .8rem }
#panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(340px, 1fr)); gap: 1rem }
figure { margin: 0 } figcaption { font-weight: 600 } svg { width: 100%; height: auto; display: block }
svg text { fill: var(--ink); font-size: 11px } .key { font-size: .85rem } .key b { font-weight: normal }
.good { color: light-dark(#1a7f37, #56d364) } .bad { color: light-dark(#b3261e, #ff7b72) }
.warn { color: light-dark(#9a6700, #d29922) } h2 { margin: 1.5rem 0 .3rem } label { margin-right: .8rem }
.wide { overflow-x: auto } #samples { max-height: 44rem; overflow-y: auto }
pre { overflow-x: auto; background: light-dark(#f4f4f4, #24272e); padding: .6rem; margin: .3rem 0 }
.sample { border-top: 1px solid var(--faint); padding: .4rem 0 } .suite { margin-left: 2rem }
select, button { font: inherit; max-width: 100% }
</style>
"""

_SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const escaped = char => `\\\\u{${char.codePointAt(0).toString(16)}}`;  // controls, and what turns the reading order
const make = (name, attributes, parent, text) => {
  const svg = ["svg", "path", "line", "text", "circle", "rect"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = String(text).replace(/[^\\n\\t\\P{C}]/gu, escaped);
  if (parent) parent.append(node);
  return node;
};
const W = 380, H = 210, LEFT = 48, RIGHT = 14, TOP = 8, BOTTOM = 22;
const short = value => value && Math.abs(value) < 1e-3 ? value.toExponential(1)
  : value.toLocaleString("en", {maximumSignificantDigits: 3});
const spacing = (low, high, count) => {  // 1, 2 or 5 times a power of ten
  const power = 10 ** Math.floor(Math.log10((high - low) / count));
  return power * [1, 2, 5, 10].find(factor => count * factor * power > 0.999 * (high - low));
};
const ticks = (low, high, by) => {
  const first = Math.ceil(low / by - 1e-6), count = Math.floor(high / by + 1e-6) - first + 1;
  return Array.from({length: count}, (_, i) => Number(((first + i) * by).toPrecision(12)));
};
for (const panel of data.panels) {
  const figure = make("figure", {}, document.getElementById("panels"));
  make("figcaption", {}, figure, panel.title);
  const steps = panel.series.flatMap(one => one.steps), values = panel.series.flatMap(one => one.values);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  let [low, high] = panel.share ? [0, 1] : [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - 1, high + 1];
  const by = spacing(low, high, 5);
  [low, high] = [by * Math.floor(low / by + 1e-6), by * Math.ceil(high / by - 1e-6)];
  const x = step => LEFT + (W - LEFT - RIGHT) * (last > first ? (step - first) / (last - first) : 0.5);
  const y = value => TOP + (H - TOP - BOTTOM) * (high - value) / (high - low);
  const svg = make("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": panel.title}, figure);
  for (const value of ticks(low, high, by)) {
    make("line", {x1: LEFT, x2: W - RIGHT, y1: y(value), y2: y(value), stroke: "var(--faint)"}, svg);
    make("text", {x: LEFT - 4, y: y(value) + 4, "text-anchor": "end"}, svg, short(value));
  }
  for (const step of last > first ? ticks(first, last, Math.max(1, spacing(first, last, 6))) : [first])
    make("text", {x: x(step), y: H - 6, "text-anchor": "middle"}, svg, step.toLocaleString("en"));
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
    if (panel.width > 1) make("b", {}, key, `(thin: each step, thick: mean of ${panel.width})`);
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
const field = id => document.getElementById(id);
const chooser = field("question"), place = field("samples");
const filters = ["right", "paid", "suites"].map(field);
const number = value => value === null || value === undefined ? "-" : short(value);
const passes = solution => {
  const [right, paid, suites] = filters.map(each => each.value);
  return (!right || solution.right === (right === "right")) && (!paid || solution.paid === (paid === "paid"))
    && (!suites || solution.suites.some(suite => suite[suites]));
};
const show = () => {
  place.replaceChildren();
  const one = data.questions[chooser.value];
  if (!one) return;
  make("pre", {}, place, one.prompt);
  for (const solution of one.solutions.filter(passes)) {
    const node = make("div", {class: "sample"}, place);
    const earned = `reward ${number(solution.reward)}, advantage ${number(solution.advantage)}`;
    make("b", {}, node, `solution ${solution.number}: ${earned}`);
    if (solution.right !== null)
      make("b", {class: solution.right ? "good" : "bad"}, node, solution.right ? "  right" : "  wrong");
    make("pre", {}, node, solution.text);
    for (const suite of solution.suites) {
      const own = make("div", {class: "suite"}, node);
      make("div", {}, own, `suite ${suite.number}: reward ${number(suite.reward)}, validity ${number(suite.validity)}`);
      const lines = make("pre", {}, own);
      for (const [line, kind] of suite.lines) make("span", {class: kind}, lines, line + "\\n");
    }
  }
};
const filter = () => {
  chooser.replaceChildren();
  let count = 0, all = 0;
  data.questions.forEach((one, i) => {
    const found = one.solutions.filter(passes).length;
    [count, all] = [count + found, all + one.solutions.length];
    if (found) make("option", {value: i}, chooser, `step ${one.step}: ${one.id} (${found})`);
  });
  field("count").textContent = `${count} of the ${all} programs here`;
  show();
};
const turn = by => {
  const count = chooser.options.length;
  if (count) chooser.selectedIndex = (chooser.selectedIndex + by + count) % count;
  show();
};
if (data.questions.some(one => one.solutions.some(solution => solution.right !== null)))
  [filters[0].value, filters[1].value] = ["wrong", "paid"];
else {
  filters[0].disabled = true;
  field("unmeasured").hidden = false;
}
filters.forEach(each => each.addEventListener("change", filter));
chooser.addEventListener("change", show);
field("before").addEventListener("click", () => turn(-1));
field("next").addEventListener("click", () => turn(1));
filter();
"""

_FILTERS = """<h2 id=paid-but-wrong>Paid, but wrong?</h2>
<p id=unmeasured hidden>Whether a program is right was not measured in these steps: no check script ran
(<code>--config.game.hidden_reward=True</code> has them run).</p>
<p><label>check script <select id=right>
<option value="">passed or failed<option value=right>right: passed<option value=wrong>wrong: failed</select></label>
<label>reward <select id=paid><option value="">any<option value=paid>1: in full<option value=less>less</select></label>
<label>suites <select id=suites>
<option value="">any<option value=kills>one kills<option value=wrong>one has a wrong test</select></label>
<span id=count></span></p>
<p><button id=before>&larr;</button> <select id=question></select> <button id=next>&rarr;</button></p>
<div id=samples></div>"""


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
    questions = [each for step in shown for each in _questions(step, samples.for_people(step))]
    data = json.dumps({"panels": _panels(rows), "questions": questions}, allow_nan=False).replace("<", "\\u003c")
    parts = [
        f"{_HEAD}<title>{html.escape(name)}</title></head><body><h1>{html.escape(name)}</h1>",
        *(f'<p class="warning">{html.escape(warning)}</p>' for warning in warnings),
        f"<p>{html.escape(title)}</p><div class=wide>{table}</div>",
        f"{_FILTERS}<details><summary>What the words mean</summary><div class=wide>{LEGEND.html()}</div></details>",
        "<h2>Curves</h2><div id=panels></div>",
        f'<script type="application/json" id=data>{data}</script>',
        f"<script>{_SCRIPT}</script></body></html>",
    ]
    return "\n".join(parts)


def _panels(rows: Rows) -> list[dict[str, Any]]:
    drawn = []
    for panel in PANELS:
        if panel.is_drawn(rows):
            series, width = [], 1
            for each in panel.series:
                steps, values = points(rows, each.metric)
                if len(steps):
                    own = 1 if panel.measured else smoothing_width(len(steps))
                    smooth, width = smoothed(values, own).tolist() if own > 1 else [], max(own, width)
                    drawn_as = {"label": each.label, "color": each.color, "smoothed": smooth}
                    series.append(drawn_as | {"steps": steps.tolist(), "values": values.tolist()})
            kind = {"share": panel.share, "measured": panel.measured, "width": width}
            drawn.append({"title": panel.title, **kind, "series": series})
    return drawn


def _questions(step: int, rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns questions of a step with solutions and suites, first those with a program that is paid but wrong."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        id = row["question_id"]
        question = found.setdefault(id, {"id": id, "step": step, "prompt": "", "solutions": {}})
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
            lines = [(_line(each), _kind(each)) for each in asserts] or [(row.get("text", ""), "")]
            kinds = {kind for _, kind in lines}
            validity = row["reward_parts"].get("validity")
            suite = {"number": row["suite"], "reward": row["reward"], "validity": validity, "lines": lines}
            solution["suites"].append(suite | {"kills": _KILLS in kinds, "wrong": _WRONG in kinds})
    questions = [question | {"solutions": list(question["solutions"].values())} for question in found.values()]

    def is_fooled(question: Mapping[str, Any]) -> bool:
        return any(each["paid"] and each["right"] is False for each in question["solutions"])

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
