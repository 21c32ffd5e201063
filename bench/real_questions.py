"""Makes the questions of the real model's run: of MBPP and LeetCodeDataset, those that the model solves sometimes.

  EVALUATED=humanevalplus_mbppplus.parquet
  python -m codea1.lab convert mbpp mbpp.jsonl --exclude=$EVALUATED --output=MBPP.parquet
  python -m codea1.lab convert leetcode LEETCODE.jsonl --exclude=$EVALUATED,MBPP.parquet --output=LEETCODE.parquet
  python -m bench.real_questions MBPP.parquet LEETCODE.parquet --output=FOLDER --rates=studies/real_rates.json

Questions of a file are ordered by a hash of their ids. The first of the first file are for validation, with mutants of
their ground truths that fail a golden test. The next of each file are asked, where their prompts are short enough:
SAMPLES programs each at temperature 1, judged by their check scripts. Training gets the questions of which the model
passes between LOW and HIGH. FOLDER gets train.parquet, validation.parquet and rates.json. What a file of RATES holds is
not asked again; the rest is asked of --model, and without one it is left out.
"""

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from codea1.data.loader import load_questions
from codea1.game.answers import extract_program
from codea1.game.prompts import DEFAULT, code_messages
from codea1.game.question import Question
from codea1.lab.mutants import drawn_mutants
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.values.verdict import Verdict

VALIDATION, ASKED, SAMPLES = 24, 80, 4
LOW, HIGH = 0.1, 0.9  # share of samples passed
MUTANTS, TRIED = 4, 8  # kept of each question of validation, of so many
PROMPT, RESPONSE, SLOTS = 384, 256, 64  # tokens, tokens, sequences
ROOM = 4096  # tokens of an answer that pages are for: an eighth of the slots at their longest, all at RESPONSE


def pass_rates(folder: str, questions: Sequence[Question], grader: Grader) -> dict[str, float]:
    """Returns the share of SAMPLES programs, at temperature 1, that pass, of each question of at most PROMPT tokens."""
    from codea1.lab.benchmarks.policies import policy_of_folder
    from codea1.rollout.engine import Request

    policy = policy_of_folder("code", folder, (PROMPT, ROOM, SLOTS))
    prompts = {each.id: policy.prompt_ids(code_messages(DEFAULT, each)) for each in questions}
    requests = [
        Request(id, prompt, 0, SAMPLES, length_limit=RESPONSE)
        for id, prompt in prompts.items()
        if len(prompt) <= PROMPT
    ]
    by_id = {each.id: each for each in questions}
    passed, runs, tokens = Counter[str](), [], 0
    samples = policy.generate(requests, seed=0, stream="real_questions", temperature=1.0, top_p=1.0)
    for number, sample in enumerate(samples):
        question = by_id[sample.question_id]
        program = extract_program(policy.tokenizer.decode(sample.token_ids), question.entry_point).source
        assert question.check_script is not None
        run = grader.check(question.module(program), question.check_script, question.entry_point)
        runs.append((question.id, run))  # not awaited here: one that never ends would stop the sampling
        tokens += len(sample.token_ids)
        if number % 20 == 19:
            print(f"{number + 1} of {len(requests) * SAMPLES} programs, {tokens:,} tokens", file=sys.stderr)
    for id, run in runs:
        passed[id] += run.result().verdict is Verdict.PASS
    return {request.question_id: passed[request.question_id] / SAMPLES for request in requests}


def broken(question: Question, grader: Grader) -> list[str]:
    """Returns up to MUTANTS mutants of the ground truth that fail its check script: none is equivalent to it."""
    tried = drawn_mutants(question.ground_truth, TRIED, question.id)
    assert question.check_script is not None
    runs = [grader.check(question.module(each), question.check_script, question.entry_point) for each in tried]
    failed = [run.result().verdict in (Verdict.FAIL, Verdict.ERROR) for run in runs]
    return [mutant for mutant, fails in zip(tried, failed, strict=True) if fails][:MUTANTS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="what `codea1.lab convert` made; the first is validation's, too")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", help="folder of the model that is asked")
    parser.add_argument("--rates", type=Path, help="rates.json of an earlier time")
    given = parser.parse_args()
    if not given.model and not given.rates:
        parser.error("one of --model and --rates is needed")
    known = json.loads(given.rates.read_text()) if given.rates else {}
    tables = [pyarrow.parquet.read_table(file) for file in given.files]
    rows = {row["extra_info"]["question_id"]: row for table in tables for row in table.to_pylist()}
    ordered = [
        sorted(
            (each for each in load_questions(file) if each.check_script),
            key=lambda each: hashlib.blake2b(each.id.encode()).hexdigest(),
        )
        for file in given.files
    ]
    given.output.mkdir(parents=True, exist_ok=True)
    with SandboxPool(isolation=AUTO) as pool:
        grader = Grader(pool)
        validation = []
        while len(validation) < VALIDATION:
            question = ordered[0].pop(0)
            if mutants := broken(question, grader):
                validation.append({**rows[question.id], "mutants": mutants})
        asked = [each for questions in ordered for each in questions[:ASKED]]
        new = [each for each in asked if each.id not in known] if given.model else []
        known |= pass_rates(given.model, new, grader) if new else {}
    # In the order of the questions, whichever were known: recorded rates give the same file of training again.
    rates = {each.id: known[each.id] for each in asked if each.id in known}
    schema = tables[0].schema.set(
        tables[0].schema.get_field_index("mutants"), pyarrow.field("mutants", pyarrow.list_(pyarrow.string()))
    )
    train = [rows[id] for id, rate in rates.items() if LOW <= rate <= HIGH]
    (given.output / "rates.json").write_text(json.dumps(rates, indent=0) + "\n")
    for name, kept in (("train", train), ("validation", validation)):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(kept, schema), given.output / f"{name}.parquet")
        print(f"{name}.parquet: {len(kept)} questions")


if __name__ == "__main__":
    main()
