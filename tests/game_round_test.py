"""A Round from verdicts to rewards, selection, the Mistake Book, rows and metrics."""

import json
import math
from dataclasses import dataclass

import pytest

from codea1.game.answers import extract_program, parse_suite
from codea1.game.calls import Call, CallTest
from codea1.game.mistake_book import NUM_SHARDS, BookChange, Evidence, MistakeBook, shard_of
from codea1.game.question import AS_WRITTEN, Question, read_signature
from codea1.game.rewards import REWARDS, OfficialReward, SolutionReward
from codea1.game.round import (
    GradedTest,
    QuestionRecord,
    Round,
    SampleRecord,
    SolutionRecord,
    SuiteRecord,
    statistics,
    variance,
)
from codea1.runs.samples import MAX_SHOWN_BYTES, rows
from codea1.values import decode_exact, encode_exact
from codea1.values.verdict import Verdict

PASS, FAIL, ERROR, NOT_RUN, INFRA = Verdict.PASS, Verdict.FAIL, Verdict.ERROR, Verdict.NOT_RUN, Verdict.INFRA
STRICT = REWARDS["strict"](alpha=0.5, num_tests=2)
QUESTION = Question("q", None, "Add one.", "Add one.", "def f(n):\n    return n + 1", "f")


@dataclass(frozen=True)
class Truth:
    value: bytes
    usable: bool = True
    reason: str = ""


def make(n: int, expected: object) -> CallTest:
    return CallTest(Call("f", encode_exact(((n,), {}))), encode_exact(expected))


TRANSCRIPTS = {player: f"{player} {{}}".format for player in ("code", "test")}


def sample(text: str, finish_reason: str = "stop") -> SampleRecord:
    return SampleRecord((1, 2), text, (3, 4, 5), (-0.5, -0.25, 0.0), finish_reason, textless_tokens=1)


def suite(index: int, verdicts: list[Verdict], *lines: str) -> SuiteRecord:
    text = "\n".join(["```python", *lines, "```"])
    parsed = parse_suite(text, "f")
    answers = {call: Truth(encode_exact(decode_exact(call.arguments)[0][0] + 1)) for call in STRICT.calls(parsed)}
    return SuiteRecord(index, sample(text), parsed, STRICT.mark(parsed, answers, AS_WRITTEN), verdicts)


def solution(index: int, suites: list[SuiteRecord], history: list[Verdict], valid: bool | None = True, **rest):
    text = "def f(n): return n"
    replayed = [GradedTest(make(n, n + 1), verdict) for n, verdict in enumerate(history)]
    return SolutionRecord(index, sample(text), extract_program(text), valid, suites, replayed, **rest)


def played() -> Round:
    solutions = [
        solution(
            0,
            [
                suite(0, [PASS, FAIL], "assert f(5) == 6", "assert f(6) == 7"),
                suite(1, [ERROR], "assert f(5) == 6", "assert f(7) == 7"),
            ],
            [PASS, FAIL],
        ),
        solution(1, [suite(0, [PASS], "assert f(5) == 6", "assert f(5) == 6"), suite(1, [], "f(1)")], [NOT_RUN, PASS]),
        solution(2, [suite(0, [FAIL, FAIL], "assert f(8) == 9", "assert f(9) == 10")], [FAIL, FAIL], valid=False),
        solution(3, [suite(0, [INFRA, FAIL], "assert f(8) == 9", "assert f(9) == 10")], [PASS, PASS]),
        solution(4, [], [], test_prompt_fits=False),
    ]
    round_ = Round(7, [QuestionRecord(QUESTION, solutions)])
    for record in round_.solutions:
        record.assign_rewards(STRICT)
    return round_


def test_rewards_are_those_of_the_policy():
    round_ = played()
    assert [record.reward.total for record in round_.solutions] == [(0.5 + 0.25) / 2, (1 + 0.5) / 2, 0.0, None, None]
    assert [record.reward.masked for record in round_.solutions] == ["", "", "", "infra", "no tests"]
    assert [record.reward.total for record in round_.suites] == [0.75, 0.5, 0.25, 0.0, 0.5, None]


def test_rewards_differ_unless_all_solutions_of_a_question_are_paid_alike():
    (record,) = played().questions
    assert record.rewards_differ
    record.solutions = record.solutions[:1]
    assert not record.rewards_differ
    record.solutions *= 2
    assert not record.rewards_differ
    record.solutions = [played().questions[0].solutions[m] for m in (0, 3)]  # the second is masked
    assert not record.rewards_differ


def test_the_first_questions_whose_rewards_differ_train():
    questions = [played().questions[0] for _ in range(4)]
    questions[1].solutions[1:] = []
    round_ = Round(7, questions)
    round_.select(8, variance, 0)
    round_.train_on_first(2)
    for question, trains in zip(questions, (True, False, True, False), strict=True):
        records = [*question.solutions, *(suite for each in question.solutions for suite in each.suites)]
        assert {each.selected for each in records} == {trains}


def test_selection_marks_all_suites_of_the_chosen_solution():
    round_ = played()
    round_.select(1, variance, 0)
    assert [record.selected for record in round_.suites] == [True, True, False, False, False, False]
    round_.select(8, variance, 0)
    assert all(record.selected for record in round_.suites)


def test_groups_compare_like_with_like():
    round_ = played()
    assert [len(group) for group in round_.code_groups()] == [5]
    assert [len(group) for group in round_.test_groups()] == [2, 2, 1, 1]


def test_the_book_learns_from_verdicts_of_valid_programs_alone():
    book = MistakeBook()
    book.update(
        "q",
        QUESTION.ground_truth_digest,
        1,
        Evidence([[make(0, 1)], [make(1, 2), make(1, 2), make(1, 2)], [make(2, 3)]]),
    )
    round_ = played()
    round_.update_book(book)
    # Test 0 is passed by solutions 0 and 3, test 1 by 1 and 3; 2 is not replayed. Solution 2 is invalid, an
    # infrastructure failure says nothing, and nothing was right in the second suite of solution 1.
    assert {test.text for test in book.retrieve("q", 9)} == {
        "assert f(1) == 2",
        "assert f(2) == 3",
        "assert f(5) == 6",
        "assert f(6) == 7",
        "assert f(9) == 10",
    }
    assert (round_.book_change, round_.book_size) == (BookChange(added=3, removed=1), 5)
    history = {e.test.text: (e.hits, e.last_failed, e.last_passed) for e in book.pages()["q"].entries.values()}
    assert history["assert f(1) == 2"] == (4, 7, 7)  # failed by solution 0, passed by 1 and 3
    assert history["assert f(5) == 6"] == (1, 7, None)


@pytest.mark.parametrize(
    ("signature", "entries"),
    [
        (read_signature("def f(n, k=0): ...", "f"), {"assert f(1) == 2": 2, "assert f(2, 0) == 3": 2}),
        (AS_WRITTEN, {f"assert f({each}": 1 for each in ("1) == 2", "1, 0) == 2", "2, 0) == 3", "2) == 3")}),
    ],
)
def test_a_failed_input_is_one_entry_however_it_is_spelled(signature, entries):
    book = MistakeBook()
    book.update("q", QUESTION.ground_truth_digest, 1, Evidence([[make(1, 2)]]))
    suites = [
        suite(0, [FAIL, FAIL], "assert f(1, 0) == 2", "assert f(2, 0) == 3"),
        suite(1, [FAIL], "assert f(2) == 3"),
    ]
    Round(2, [QuestionRecord(QUESTION, [solution(0, suites, [])], signature)]).update_book(book)
    assert {entry.test.text: entry.frequency for entry in book.pages()["q"].entries.values()} == entries


@pytest.mark.parametrize("signature", [read_signature("def f(x): ...", "f"), AS_WRITTEN])
def test_a_failed_test_of_another_form_is_another_entry(signature):
    def formed(line: str, answer: object) -> SuiteRecord:
        parsed = parse_suite(f"```python\n{line}\n```", "f", all_forms=True)
        answers = {call: Truth(encode_exact(answer)) for call in STRICT.calls(parsed)}
        return SuiteRecord(0, sample(line), parsed, STRICT.mark(parsed, answers, signature), [FAIL])

    book = MistakeBook()
    for step, failed in enumerate((formed("assert set(f(1)) == {1}", {1}), formed("assert sorted(f(1)) == [1]", [1]))):
        record = QuestionRecord(QUESTION, [solution(0, [failed], [])], signature)
        Round(step, [record]).update_book(book)
    assert [entry.test.call.form for entry in book.pages()["q"].entries.values()] == ["set", "sorted"]


def test_a_round_teaches_the_questions_that_a_book_holds():
    own, other = (range(part, NUM_SHARDS, 2) for part in sorted({0, 1}, key=lambda part: shard_of("q") % 2 != part))
    round_ = played()
    round_.update_book(MistakeBook(other))
    assert (round_.book_change, round_.book_size) == (BookChange(), 0)
    round_.update_book(MistakeBook(own))
    assert (round_.book_change, round_.book_size) == (BookChange(added=3), 3)


@pytest.mark.parametrize("policy", REWARDS)
def test_only_the_ground_truths_own_answers_enter_the_book(policy):
    """Under any policy: a suite's wrong answer is left out, or replaced."""
    rules = REWARDS[policy](alpha=0.5, num_tests=3)
    parsed = parse_suite("```python\nassert f(1) == 2\nassert f(2) == 2\nassert f(3) == 9\n```", "f")
    answers = {
        call: Truth(encode_exact(decode_exact(call.arguments)[0][0] + 1), usable="3" not in call.text)
        for call in rules.calls(parsed)
    }
    marked = rules.mark(parsed, answers, AS_WRITTEN)
    failed = SuiteRecord(0, sample(""), parsed, marked, [FAIL for item in marked if item.runs])
    blunt = SuiteRecord(
        0, sample(""), parsed, marked, [PASS if item.is_right else FAIL for item in marked if item.runs]
    )
    assert (failed.exposes, blunt.exposes) == (True, False)
    # Where a wrong answer's test runs, with the ground truth's answer, it teaches the Code LLM like any other.
    assert solution(0, [blunt], []).exposed == isinstance(rules, OfficialReward)
    book = MistakeBook()
    Round(1, [QuestionRecord(QUESTION, [solution(0, [failed], [])])]).update_book(book)
    right, replaced = make(1, 2), make(2, 3)
    assert book.retrieve("q", 9) == ([right, replaced] if isinstance(rules, OfficialReward) else [right])


def test_rows_are_json_and_tell_the_whole_story():
    round_ = played()
    round_.select(1, variance, 0)
    lines = [json.loads(json.dumps(row, allow_nan=False)) for row in rows(round_, TRANSCRIPTS)]
    assert "".join(row["player"][0] for row in lines) == "cttcttctctc"
    code, test = lines[0], lines[2]
    assert (code["prompt"], test["prompt"]) == ("code (1, 2)", "test (1, 2)")
    assert code["history"] == [
        {"test": "assert f(0) == 1", "verdict": "pass"},
        {"test": "assert f(1) == 2", "verdict": "fail"},
    ]
    assert (code["reward"], code["masked"], code["reward_parts"]["history_pass_rate"]) == (0.375, "", 0.5)
    assert (test["step"], test["question_id"], test["solution"], test["suite"]) == (7, "q", 0, 1)
    assert test["asserts"] == [
        {
            "source": "assert f(5) == 6",
            "call": "f(5)",
            "form": "",
            "mark": "right",
            "detail": "",
            "truth": "6",
            "verdict": "error",
        },
        {
            "source": "assert f(7) == 7",
            "call": "f(7)",
            "form": "",
            "mark": "wrong answer",
            "detail": "",
            "truth": "8",
            "verdict": None,
        },
    ]
    assert test["reward_parts"] == {"validity": 0.5, "adversarial": 0.5, "penalty": 0.0}
    assert (test["selected"], test["token_ids"], test["log_probs"]) == (True, [3, 4, 5], [-0.5, -0.25, 0.0])
    assert (lines[-1]["reward"], lines[-1]["masked"], lines[-1]["test_prompt_fits"]) == (None, "no tests", False)


def test_rows_show_large_values_by_their_size():
    record = solution(0, [], [])
    record.history = [GradedTest(make(1, "x" * MAX_SHOWN_BYTES), PASS)]
    (row,) = rows(Round(0, [QuestionRecord(QUESTION, [record])]), TRANSCRIPTS)
    assert row["history"][0]["test"] == f"assert f(1) == <{MAX_SHOWN_BYTES + 5} bytes>"


def test_statistics_by_hand():
    round_ = played()
    round_.select(1, variance, 0)
    metrics = statistics(round_)
    expected = {
        "code/reward": (0.375 + 0.75 + 0.0) / 3,
        "code/reward_std": math.sqrt((0.375**2 + 0.75**2) / 3 - (1.125 / 3) ** 2),
        "code/pass_rate_new": (0.25 + 1.0 + 0.0) / 3,
        "code/pass_rate_history": (0.5 + 0.5 + 0.0) / 3,
        "code/program_valid": 0.8,
        "code/masked_infra": 1,
        "code/masked_no_tests": 1,
        "code/no_code_block_frac": 1.0,
        "code/truncated_frac": 0.0,
        "code/textless_tokens": 5.0,
        "code/response_tokens": 3,
        "code/group_zero_std_frac": 0.0,
        "code/contrast": 1.0,
        "code/prompt_too_long": 0,
        "test/reward": (0.75 + 0.5 + 0.25 + 0 + 0.5) / 5,
        "test/validity": (1 + 0.5 + 0.5 + 0 + 1) / 5,
        "test/adversarial": (0.5 + 0.5 + 0 + 0 + 0) / 5,
        "test/kill_rate": 3 / 5,
        "test/answer_mismatch_rate": 1 / 9,
        "test/duplicate_rate": 1 / 10,
        "test/rejected_rate": 0.0,
        "test/suite_tests": 10 / 6,
        "test/masked_infra": 1,
        "test/masked_no_tests": 0,
        "test/no_code_block_frac": 0.0,
        "test/prompt_too_long": 1,
        "test/group_zero_std_frac": 0.0,
        "verdict/pass": 6 / 16,
        "verdict/infra": 1 / 16,
        "verdict/not_run": 1 / 16,
        "book/size": 0,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert all(isinstance(value, float) and math.isfinite(value) for value in metrics.values())
    assert sum(value for name, value in metrics.items() if name.startswith("verdict/")) == pytest.approx(1)


def test_new_tests_expose_a_solution_and_replayed_ones_do_not():
    solutions = played().questions[0].solutions
    assert [each.exposed for each in solutions] == [True, False, True, True, False]
    assert not solution(0, [], [FAIL]).exposed
    solutions[1].golden = [GradedTest(make(1, 2), FAIL)]
    assert solutions[1].exposed
    # Of the first two, and of the first with one that is masked and was spared.
    for own, contrast in ((solutions[:2], 0.0), ([solutions[0], played().questions[0].solutions[4]], 0.0)):
        assert statistics(Round(7, [QuestionRecord(QUESTION, own)]))["code/contrast"] == contrast


def test_golden_tests_alone_give_no_metrics_of_the_test_llm():
    record = solution(0, [], [])
    record.golden = [GradedTest(make(0, 1), PASS), GradedTest(make(1, 2), FAIL)]
    record.assign_golden_reward()
    metrics = statistics(Round(0, [QuestionRecord(QUESTION, [record]), QuestionRecord(QUESTION)]))
    assert (metrics["code/reward"], metrics["code/pass_rate_golden"]) == (0.5, 0.5)
    assert (metrics["code/group_zero_std_frac"], metrics["code/prompt_too_long"]) == (1.0, 1.0)
    assert not [name for name in metrics if name.startswith("test/")]


def test_own_kills_and_those_of_hidden_mutants_by_hand():
    """Of three hidden mutants f(5) == 6 kills one, f(6) == 7 none, and of f(7) == 8 it is not known."""
    hidden = [[FAIL, PASS, FAIL], [PASS, PASS, INFRA], [NOT_RUN, PASS, PASS]]
    three = [f"assert f({n}) == {n + 1}" for n in (5, 6, 7)]
    solutions = [
        solution(0, [suite(0, [PASS, FAIL], *three[:2]), suite(1, [PASS], three[0])], [], passes_check=False),
        solution(1, [suite(0, [INFRA], three[0])], [], passes_check=False),
        solution(2, [suite(0, [FAIL], three[0])], [], passes_check=True),  # its check script does not see the mistake
        solution(3, [suite(0, [FAIL], three[0])], [], valid=False, passes_check=False),
    ]
    solutions[0].suites[0].on_hidden = hidden
    solutions[0].suites[1].on_hidden = [[], [], []]
    metrics = statistics(Round(0, [QuestionRecord(QUESTION, solutions)]))
    assert metrics["test/own_kill_rate"] == 1 / 2
    assert metrics["test/trivial_rate"] == 1 / 2
    assert metrics["test/hidden_kill_rate"] == ((1 + 0) / 2 + 0) / 2
    assert not {"test/own_kill_rate", "test/trivial_rate"} & statistics(played()).keys()


def paid(total: float | None, passes_check: bool | None) -> SolutionRecord:
    record = solution(0, [], [], passes_check=passes_check)
    record.reward = SolutionReward(total)
    return record


def test_misranked_pairs_are_of_one_group():
    groups = [
        [paid(0.5, True), paid(1.0, False), paid(0.5, False), paid(None, False), paid(0.0, None)],
        [paid(0.9, True), paid(1.0, True), paid(0.2, False), paid(0.9, False)],
        [paid(0.0, True), paid(0.1, True)],
    ]
    metrics = statistics(Round(0, [QuestionRecord(QUESTION, group) for group in groups]))
    assert metrics["code/misranked"] == 1 / 6
    assert metrics["code/misranked_ties"] == 2 / 6
    assert "code/misranked" not in statistics(Round(0, [QuestionRecord(QUESTION, groups[2])]))


def test_paid_but_wrong_has_the_whole_reward_and_fails_its_check_script():
    solutions = [paid(1.0, False), paid(0.9, False), paid(1.0, True), paid(None, False), paid(1.0, None)]
    assert [solution.paid_but_wrong for solution in solutions] == [True, False, False, False, None]
    assert statistics(Round(0, [QuestionRecord(QUESTION, solutions)]))["code/paid_but_wrong"] == 1 / 4
    assert "code/paid_but_wrong" not in statistics(played())


def test_an_empty_round_has_metrics():
    assert statistics(Round(0))["book/size"] == 0
