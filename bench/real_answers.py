"""Asks the Code LLM of runs, as the first of them began and as each is now, otherwise than their evaluations did.

  python -m bench.real_answers temperature RUN [RUN ...] --output=results/coder/temperature.json
  python -m bench.real_answers imports RUN [RUN ...] --file=data/laptop/test.parquet --output=results/coder/imports.json
  python -m bench.real_answers stub RUN [RUN ...] --output=results/coder/stub.json

All ask questions of the test split with the run's prompts. `temperature` draws SAMPLES programs for each question at
TEMPERATURE, cooler than in training. `imports` asks greedily those whose rows in FILE name imports, and runs programs
below them; the run's evaluation ran them without, so one that passes only here lacks only an import. `stub` asks
HumanEval+ greedily, and begins each answer with the task's imports, signature and docstring. OUTPUT holds how often the
programs of each question passed, and grows: a run whose folder has a name in it is not asked again. Prints pass@1 in %,
its 95 % interval over questions, and the difference from the run's evaluation (`imports`) or from before training.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import pyarrow.parquet as pq

from codea1.evaluation.held_out import HeldOut, passes
from codea1.evaluation.statistics import bootstrap_interval, paired_difference
from codea1.game.answers import extract_program
from codea1.game.grading import Judge
from codea1.game.prompts import code_messages
from codea1.lab.opened_run import OpenedRun, opened_run
from codea1.rollout.engine import Request
from codea1.runtime.hosts import Hosts
from codea1.values.verdict import Verdict

TEMPERATURE, SAMPLES = 0.7, 2  # as studies/coder.toml declares
BEFORE = "before training"


def asked(opened: OpenedRun, imports: dict[str, str]) -> dict[str, float]:
    """Returns the share of the programs that passed, by question; greedily, below imports if given."""
    questions = opened.parts.held_out["test"]
    if imports:
        questions = [dataclasses.replace(each, preamble=imports[each.id]) for each in questions if imports[each.id]]
    samples, temperature = (1, 0.0) if imports else (SAMPLES, TEMPERATURE)
    held_out = HeldOut(questions, opened.parts.rules, samples, 0, purpose="test")
    passed = passes(held_out, opened.parts.players["code"], opened.grader, Hosts(), samples, temperature)
    return dict(zip((question.id for question in questions), passed.mean(axis=1).tolist(), strict=True))


def completed(opened: OpenedRun) -> dict[str, float]:
    """Returns whether the greedy answer that begins with its stub passed, for the tasks of HumanEval+ that fit."""
    player, templates, started = opened.parts.players["code"], opened.parts.rules.templates, {}
    questions = {each.id: each for each in opened.parts.held_out["test"] if "HumanEval" in each.id}
    stubs = {id: f"```python\n{each.problem}" for id, each in questions.items()}
    prompts = {id: player.prompt_ids(code_messages(templates, each), stubs[id]) for id, each in questions.items()}
    requests = [Request(id, prompt, 0, 1) for id, prompt in prompts.items() if player.fits(prompt)]
    for sample in player.generate(requests, stream="code/test", temperature=0.0):
        id, text = sample.question_id, player.tokenizer.decode(sample.token_ids)
        program = extract_program(stubs[id] + text, questions[id].entry_point).source
        started[id] = Judge(questions[id], opened.grader).check(program)
    verdicts = {id: check.result().verdict for id, check in started.items()}
    if lost := [id for id, verdict in verdicts.items() if verdict is Verdict.INFRA]:
        raise SystemExit(f"the sandbox failed on the programs for {', '.join(lost)}")
    return {id: float(verdict is Verdict.PASS) for id, verdict in verdicts.items()}


def evaluated(run: str, when: str) -> dict[str, float]:
    """Returns whether the greedy answer passed, by question, in a run's evaluation before or after training."""
    stored = json.loads(Path(run, "evaluations", f"{when}.json").read_text())
    return dict(zip(stored["question_ids"], stored["metrics"]["code_pass_at_1_greedy"]["per_question"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["temperature", "imports", "stub"])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--file", help="parquet of the test split, for `imports`")
    parser.add_argument("--output", type=Path, required=True)
    flags = parser.parse_args()
    flags.output.parent.mkdir(parents=True, exist_ok=True)  # not after a quarter of an hour
    described = pq.read_table(flags.file).column("extra_info").to_pylist() if flags.what == "imports" else []
    imports = {each["question_id"]: each["imports"] for each in described}
    rows = json.loads(flags.output.read_text()) if flags.output.exists() else {}
    for name, run, step in [(BEFORE, flags.runs[0], "0"), *((Path(run).name, run, "last") for run in flags.runs)]:
        if name not in rows:
            with opened_run(run, step, Hosts()) as opened:
                rows[name] = completed(opened) if flags.what == "stub" else asked(opened, imports)
            flags.output.write_text(json.dumps(rows, indent=0))
        first = evaluated(run, "before" if step == "0" else "after") if imports else rows[BEFORE]
        before, after = ([row[id] for id in rows[name]] for row in (first, rows[name]))
        print(name, *(f"{100 * value:.1f}" for value in bootstrap_interval(after)), sep="  ")
        if first is not rows[name]:
            print("  difference", *(f"{100 * value:+.1f}" for value in paired_difference(before, after)), sep="  ")
        if imports:
            print("  pass below their imports alone:", *(id for id in rows[name] if rows[name][id] > first[id]))


if __name__ == "__main__":
    main()
