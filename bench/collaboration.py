"""Test-time collaboration in a made world: a Test LLM's tests choose one of N programs, with no ground truth.

  python -m bench.collaboration results/law/collaboration.json [RUN RUN ...] [--workdir=DIR]

Adds each finished run of configs/tiny.py, one a seed, to the file of results, and prints the paper's table of test-time
collaboration for all that are there. *Base* is the run's warm start: a run of one step at a rate of 1e-30. On the
first 256 test questions of the world each Code LLM writes eight programs at temperature 1. Each Test LLM writes a suite
of four asserts for each of them, and the program that passes most of all the suites' tests is chosen (`codea1.benchmark
code --best_of`).

Declared before it ran, on seeds 302 to 305 of *aimed* in `blind` (studies/law.toml). Hypotheses: for programs of the
trained Code LLM, tests of the trained Test LLM choose better than chance, than those of the warm start, and than the
trivial rule, the text that most of the eight have (of equals, the first). Means over compositions; intervals cross
seeds with them. Seen before were the first 24 questions with seed 302, on which the script was tried.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from codea1.data.loader import rows_of
from codea1.data.sources import source_of, world_of
from codea1.lab.statistics import Scores, difference, interval
from codea1.lab.study.results import by_composition
from codea1.values.verdict import Verdict

QUESTIONS, SAMPLES = 256, 8
ALONE, COMMON, BEST = "one program", "the most common text", "a right one among the eight"
PLAYERS = ("Base", "trained")
COMPARED = (  # the first less the second, each a Code LLM and what chooses
    (("trained", "trained"), ("trained", ALONE)),
    (("trained", "trained"), ("trained", "Base")),
    (("trained", "trained"), ("trained", COMMON)),
    (("Base", "trained"), ("Base", "Base")),
)


def measure(run: Path, config: dict[str, Any], world: str, workdir: Path) -> dict[str, Any]:
    """Returns what a run's seed scores: by Code LLM and chooser, a value for each question."""
    start, data = Path(config["code"]["model"]).parent, config["data"]["folder"]
    questions = workdir / "questions.jsonl"
    rows = rows_of(source_of(world), "test", data)
    kept = [row for (_, row), _ in zip(rows, range(QUESTIONS), strict=False)]
    questions.write_text("".join(json.dumps({**row, "data_source": "humanevalplus"}) + "\n" for row in kept))
    base, suites = workdir / "start", workdir / "test_model"
    rates = [f"--config.{player}.learning_rate=1e-30" for player in ("code", "test")]
    sets = [f"--config.data.{name}.limit=1" for name in ("validation", "test")]
    where = f"--config=configs/tiny.py:recipe=aimed,world={world},seed={config['seed']},sft={start}"
    codea1("train", where, f"--workdir={base}", f"--config.data.folder={data}", "--config.steps=1", *rates, *sets)
    if not suites.exists():
        codea1("export", f"--run={run}", "--player=test", "--dtype=float32", f"--output={suites}")
    scores: dict[str, Any] = {}
    for player, of in zip(PLAYERS, (base, run), strict=True):
        for chooser, folder in zip(PLAYERS, (start / "model", suites), strict=True):
            output = workdir / f"{player}_{chooser}"
            words = ("--benchmark=humanevalplus", "--semantics=scripts", f"--file={questions}", "--num_tests=4")
            drawn = (f"--samples={SAMPLES}", "--temperature=1", "--top_p=1", "--max_prompt_length=48")
            lengths = ("--max_response_length=68", f"--best_of={folder}", f"--output={output}", f"--run={of}")
            codea1("benchmark", "code", *words, *drawn, *lengths)
            (chosen,) = output.glob("evaluations/humanevalplus_best_of_*.json")
            evaluation = json.loads(chosen.read_text())
            ids = evaluation["question_ids"]
            scores[f"{player}, {chooser}"] = evaluation["metrics"]["pass_at_1"]["per_question"]
        (programs,) = output.glob("evaluations/humanevalplus_step_*/attempts.jsonl")
        texts = by_question(programs, "program")
        verdicts = by_question(programs.with_name("results.jsonl"), "verdict")
        passed = {id: [verdict == Verdict.PASS for verdict in row] for id, row in verdicts.items()}
        common = {id: row.index(Counter(row).most_common(1)[0][0]) for id, row in texts.items()}
        scores[f"{player}, {ALONE}"] = [float(np.mean(passed[id])) for id in ids]
        scores[f"{player}, {COMMON}"] = [float(passed[id][common[id]]) for id in ids]
        scores[f"{player}, {BEST}"] = [float(any(passed[id])) for id in ids]
    return {"world": world, "questions": ids, "scores": scores}


def by_question(path: Path, field: str) -> dict[str, list[str]]:
    """Returns a field of the rows of an evaluation's file, in the order of each question's samples."""
    found: dict[str, dict[int, str]] = {}
    for row in map(json.loads, path.read_text().splitlines()):
        found.setdefault(row["question_id"], {})[row["index"]] = row[field]
    return {id: [each[index] for index in sorted(each)] for id, each in found.items()}


def codea1(command: str, *words: str) -> None:
    """Runs a command of codea1 on the CPU. Raises CalledProcessError."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-m", f"codea1.{command}", *words], env=environment, check=True)


def table(seeds: dict[str, Any]) -> list[str]:
    """Returns the rows of both tables, in percent and in points."""

    def scores(player: str, chooser: str) -> Scores:
        rows = [each["scores"][f"{player}, {chooser}"] for each in seeds.values()]
        first = next(iter(seeds.values()))
        return by_composition(np.array(rows)[..., None], first["questions"], first["world"], ())

    def shown(values: tuple[float, ...], form: str) -> str:
        mean, low, high = (format(100 * value, form) for value in values[:3])
        return f"{mean} [{low}, {high}]"

    lines = [f"seeds {', '.join(seeds)}", "", "| Code LLM | chosen by | pass@1 |", "| :-- | :-- | --: |"]
    for player in PLAYERS:
        for chooser in (ALONE, COMMON, *PLAYERS, BEST):
            lines.append(f"| {player} | {chooser} | {shown(interval([scores(player, chooser)]), '.1f')} |")
    lines += ["", "| first less second | points | p |", "| :-- | --: | --: |"]
    for first, second in COMPARED:
        found = difference([scores(*second)], [scores(*first)])
        lines.append(
            f"| {' + '.join(first)} less {' + '.join(second)} | {shown(found, '+.1f')} | {found.p_value:.3g} |"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--workdir", type=Path, default=Path("runs/collaboration"))
    given = parser.parse_args()
    seeds = json.loads(given.results.read_text()) if given.results.exists() else {}
    for run in given.runs:
        config = json.loads((run / "config.json").read_text())
        seed, world = str(config["seed"]), world_of(config["data"]["test"]["source"])
        if world is None or any(each["world"] != world for each in seeds.values()):
            sys.exit(
                f"{run} is of {config['data']['test']['source']}; all runs of {given.results} are of one made world."
            )
        if seed in seeds:
            print(f"{given.results} has seed {seed}: {run} is not measured", file=sys.stderr)
        else:
            workdir = given.workdir / seed
            workdir.mkdir(parents=True, exist_ok=True)
            seeds[seed] = measure(run, config, world, workdir)
            given.results.write_text(json.dumps(seeds))
    print("\n".join(table(seeds)))


if __name__ == "__main__":
    main()
