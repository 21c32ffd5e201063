"""Asks the Code LLM of runs, as the first of them began and as each is now, at a lower temperature than in training.

  python -m bench.real_temperature RUN [RUN ...] --output=results/coder/temperature.json

The test split's questions get SAMPLES programs each at TEMPERATURE, with the prompts and lengths of the run. OUTPUT
holds how often the programs of each question passed, and grows: a run whose folder has a name in it is not asked again.
Prints pass@1 in %, with its 95 % interval over questions, and that of the difference from before training.
"""

import argparse
import json
from pathlib import Path

from codea1.evaluation.held_out import HeldOut, passes
from codea1.evaluation.statistics import bootstrap_interval, paired_difference
from codea1.lab.opened_run import opened_run
from codea1.runtime.hosts import Hosts

TEMPERATURE, SAMPLES = 0.7, 2  # as studies/coder.toml declares
BEFORE = "before training"


def asked(run: str, step: str) -> dict[str, float]:
    """Returns the share of the programs that passed, by question, of a run's Code LLM at one step."""
    with opened_run(run, step, Hosts()) as opened:
        questions = opened.parts.held_out["test"]
        held_out = HeldOut(questions, opened.parts.rules, SAMPLES, 0, purpose="test")
        passed = passes(held_out, opened.parts.players["code"], opened.grader, Hosts(), SAMPLES, TEMPERATURE)
    return dict(zip((question.id for question in questions), passed.mean(axis=1).tolist(), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    flags = parser.parse_args()
    flags.output.parent.mkdir(parents=True, exist_ok=True)  # not after a quarter of an hour
    rows = json.loads(flags.output.read_text()) if flags.output.exists() else {}
    for name, run, step in [(BEFORE, flags.runs[0], "0"), *((Path(run).name, run, "last") for run in flags.runs)]:
        if name not in rows:
            rows[name] = asked(run, step)
            flags.output.write_text(json.dumps(rows, indent=0))
        before, after = ([row[id] for id in rows[BEFORE]] for row in (rows[BEFORE], rows[name]))
        for interval in [bootstrap_interval(after)] + [paired_difference(before, after)] * (name != BEFORE):
            print(name, *(f"{100 * value:.1f}" for value in interval), sep="  ")


if __name__ == "__main__":
    main()
