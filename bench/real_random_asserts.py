"""Writes asserts on random inputs, answered by the ground truth: the tests of a tester that aims nowhere.

  python -m bench.real_random_asserts data/laptop/train.parquet --count=8 --seed=0 --output=data/laptop/random.jsonl

Each input is that of a golden test with every value in it drawn anew, of the same type and of about the same size. Kept
are those on which the ground truth answers twice alike with plain data; a question gets `count` of them if that many
are found in TRIES. The file is what `data.static_tests` names, with method static_tests.
"""

import argparse
import random
import string
from collections.abc import Iterator
from typing import Any

from codea1.data.loader import load_questions
from codea1.game.asserts import golden_tests
from codea1.game.calls import Call, CallTest
from codea1.game.grading import Judge
from codea1.game.question import Question
from codea1.lab.data.static_tests import writable, write_static_tests
from codea1.runtime.futures import start
from codea1.sandbox.host.grading import Grader
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation import AUTO
from codea1.storage.objects import location
from codea1.values import decode_exact, encode_exact

TRIES = 10  # inputs drawn for each that is wanted
MARGIN = 1.5  # by how much more than the size of the old value a new one's may be


def redrawn(value: Any, rng: random.Random) -> Any:
    """Returns a random value of the type of another, and of about its size; itself where there is no such rule."""
    match value:
        case bool():
            return rng.random() < 0.5
        case int():
            most = int(MARGIN * abs(value)) + 2
            return rng.randint(-most if value < 0 else 0, most)
        case float():
            return round(rng.uniform(-1 if value < 0 else 0, 1) * (MARGIN * abs(value) + 1), 2)
        case str():
            more = string.ascii_letters if value.isalpha() else string.printable[:94]
            letters = value + "".join(rng.choices(more, k=2))
            return "".join(rng.choices(letters, k=rng.randint(0, int(MARGIN * len(value)) + 1)))
        case list() | tuple() if value:
            count = rng.randint(0, int(MARGIN * len(value)) + 1) if isinstance(value, list) else len(value)
            items = [value[i] for i in range(count)] if isinstance(value, tuple) else rng.choices(value, k=count)
            return type(value)(redrawn(item, rng) for item in items)
        case set():
            return {redrawn(item, rng) for item in value}
        case dict():
            return {redrawn(key, rng): redrawn(item, rng) for key, item in value.items()}
    return value


def calls(question: Question, count: int, rng: random.Random) -> Iterator[Call]:
    """Yields different random calls of a question's function."""
    known = [test.call for test in golden_tests(question) if not test.call.form]
    seen = {call.arguments for call in known}
    for _ in range(count * TRIES if known else 0):
        call = rng.choice(known)
        positional, named = decode_exact(call.arguments)
        named = {name: redrawn(value, rng) for name, value in named.items()}
        arguments = encode_exact((tuple(redrawn(value, rng) for value in positional), named))
        if arguments not in seen:
            seen.add(arguments)
            yield Call(call.entry_point, arguments)


def random_tests(question: Question, count: int, seed: int, grader: Grader) -> list[CallTest]:
    """Returns up to `count` tests on random inputs that the ground truth answers."""
    asked = list(calls(question, count, random.Random(f"{seed}/{question.id}")))
    answers = start(Judge(question, grader).answers(asked)).result()
    tests = [CallTest(call, answers[call].value) for call in asked if answers[call].usable]
    return writable(tests)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", required=True)
    given = parser.parse_args()
    with SandboxPool(isolation=AUTO) as pool:
        grader = Grader(pool)
        questions = load_questions(given.questions)
        tests = [(each, random_tests(each, given.count, given.seed, grader)) for each in questions]
    write_static_tests(location(given.output, "--output"), tests)
    counts = [len(found) for _, found in tests]
    whole = f"{counts.count(given.count)} have {given.count}"
    print(f"{sum(counts)} tests of {sum(map(bool, counts))} of {len(counts)} questions; {whole}")


if __name__ == "__main__":
    main()
