"""Makes the questions of the real model's runs: those that it solves sometimes.

  python -m bench.real_questions MBPP.parquet LEETCODE.parquet KODCODE.parquet --output=FOLDER \
    --rates=studies/coder_rates.json --model=MODEL

The files are what `codea1.lab convert` made, see docs/real.md. The first ASKED questions of each, ordered by a hash of
their ids, are asked until WANTED of all are solved sometimes: SAMPLES programs each at temperature 1, which end with
their first code block, where the prompt is short enough. Check scripts judge, or golden tests where there is none.
RATES holds how many passed, -1 for a prompt that is too long, and grows as questions are asked: what it holds is not
asked again, and without --model nothing is.

Questions with 1 to SAMPLES - 1 programs passed are kept. VALIDATION of them, which have mutants that fail what judges
programs, are for validation; the others, but for near duplicates of those, for training. FOLDER gets train.parquet and
validation.parquet, and, of --test=EVALUATED.parquet,PACK.parquet, test.parquet: the tasks of HumanEval+ and MBPP+ that
the reference validates on, and the wrong programs of HumanEvalPack (as converted) as mutants of theirs.
"""

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pyarrow
import pyarrow.parquet

from codea1.data.loader import load_questions
from codea1.game.answers import extract_program
from codea1.game.asserts import golden_tests
from codea1.game.grading import Judge
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.lab.data.near_duplicates import NearDuplicates
from codea1.lab.mutants import drawn_mutants
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

ASKED, SAMPLES, VALIDATION = 600, 8, 48
WANTED = 200  # questions solved sometimes, after which no more are asked
MUTANTS, TRIED = 4, 8  # kept of each question of validation, of so many
PROMPT, RESPONSE, SLOTS = 384, 512, 64  # tokens, tokens, sequences
AT_ONCE = 48  # questions between two writings of RATES


def passes(judge: Judge, program: str) -> Future:
    """Starts a program on its question's check script, or on its golden tests."""
    return judge.check(program) if judge.question.check_script else judge.grade(program, golden_tests(judge.question))


def passed(run: Future) -> bool:
    """Returns whether a program passed all that `passes` started."""
    found = run.result()
    return found.verdict is Verdict.PASS if hasattr(found, "verdict") else {*found.verdicts} == {Verdict.PASS}


def asked(folder: str, questions: Sequence[Question], grader: Grader) -> Iterator[dict[str, int]]:
    """Yields how many of SAMPLES programs pass, by question of at most PROMPT tokens; of longer ones -1."""
    from codea1.lab.benchmarks.policies import policy_of_folder
    from codea1.rollout.engine import Request

    policy = policy_of_folder("code", folder, (PROMPT, RESPONSE, SLOTS), stop_at_block=True)
    for start in range(0, len(questions), AT_ONCE):
        judges = {question.id: Judge(question, grader) for question in questions[start : start + AT_ONCE]}
        prompts = {id: policy.prompt_ids(code_messages(DEFAULT, judge.question)) for id, judge in judges.items()}
        requests = [Request(id, ids, 0, SAMPLES) for id, ids in prompts.items() if policy.fits(ids)]
        counts, runs, tokens = dict.fromkeys(judges, -1) | {each.question_id: 0 for each in requests}, [], 0
        for sample in policy.generate(requests, seed=0, stream="real_questions", temperature=1.0, top_p=1.0):
            judge = judges[sample.question_id]
            text = policy.tokenizer.decode(sample.token_ids)
            program = extract_program(text, judge.question.entry_point).source
            runs.append((sample.question_id, passes(judge, program)))
            tokens += len(sample.token_ids)
        for id, run in runs:
            counts[id] += passed(run)
        print(f"{start + len(judges)} of {len(questions)} questions, {tokens:,} more tokens", file=sys.stderr)
        yield counts


def broken(judge: Judge) -> list[str]:
    """Returns up to MUTANTS mutants of the ground truth that fail what judges programs: none is equivalent to it."""
    tried = drawn_mutants(judge.question.ground_truth, TRIED, judge.question.id)
    runs = [passes(judge, mutant) for mutant in tried]
    return [mutant for mutant, run in zip(tried, runs, strict=True) if not passed(run)][:MUTANTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rates", type=Path, required=True)
    parser.add_argument("--test", help="two files")
    parser.add_argument("--model", help="folder of the model that is asked")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    tables = [pyarrow.parquet.read_table(file) for file in given.files]
    rows = {row["extra_info"]["question_id"]: row for table in tables for row in table.to_pylist()}
    ordered = [
        question
        for file in given.files
        for question in sorted(load_questions(file), key=lambda q: hashlib.blake2b(q.id.encode()).hexdigest())[:ASKED]
    ]
    known = json.loads(given.rates.read_text()) if given.rates.exists() else {}
    if not all(isinstance(count, int) for count in known.values()):
        parser.error(f"{given.rates} holds shares, and no numbers of {SAMPLES} programs")
    with SandboxPool(isolation=AUTO) as pool:
        grader = Grader(pool)
        new = [question for question in ordered if question.id not in known] if given.model else []
        for counts in asked(given.model, new, grader) if new else ():
            known |= counts
            written = given.rates.with_suffix(".new")
            written.write_text(json.dumps(known, indent=0) + "\n")
            os.replace(written, given.rates)
            if sum(0 < count < SAMPLES for count in known.values()) >= WANTED:
                break
        kept = [question for question in ordered if 0 < known.get(question.id, 0) < SAMPLES]
        mutants: dict[str, list[str]] = {}  # of validation
        for question in kept:
            if question.check_script and len(mutants) < VALIDATION and (broken_ones := broken(Judge(question, grader))):
                mutants[question.id] = broken_ones
    held_out = NearDuplicates(question for question in kept if question.id in mutants)
    validation = [{**rows[id], "mutants": found} for id, found in mutants.items()]
    train = [rows[each.id] for each in kept if not held_out.has(each.id, each.description, each.ground_truth)]
    print("programs passed, questions:", dict(sorted(Counter(known.values()).items())))
    if given.test:
        evaluated, pack = (pyarrow.parquet.read_table(file) for file in given.test.split(","))
        wrong = {row["extra_info"]["question_id"].split("/")[1]: row["mutants"] for row in pack.to_pylist()}
        names = [row["extra_info"]["question_id"].split("/") for row in evaluated.to_pylist()]
        mutants_of = [wrong.get(number, []) if source == "HumanEval" else [] for source, number in names]
        table = evaluated.append_column("mutants", pyarrow.array(mutants_of, pyarrow.list_(pyarrow.string())))
        pyarrow.parquet.write_table(table, given.output / "test.parquet")
        print(f"test.parquet: {len(names)} questions, {sum(map(bool, mutants_of))} with a wrong program")
    schema = tables[0].schema.set(
        tables[0].schema.get_field_index("mutants"), pyarrow.field("mutants", pyarrow.list_(pyarrow.string()))
    )
    for name, split in (("train", train), ("validation", validation)):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(split, schema), given.output / f"{name}.parquet")
        print(f"{name}.parquet: {len(split)} questions")


if __name__ == "__main__":
    main()
