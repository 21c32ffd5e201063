"""Whole evaluations of programs on code benchmarks: resumed, refused, told, with a model and with best-of-N."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from codea1.game.grading import Judge
from codea1.game.prompts import TINY
from codea1.game.question import Question
from codea1.lab.benchmarks import best_of_n, evaluation, programs
from codea1.lab.benchmarks.benchmarks import AnswerSampling, EvaluationSpec
from codea1.lab.benchmarks.best_of_n import count_passes, different_tests
from codea1.lab.benchmarks.evalplus import CheckScripts, EvalPlus
from codea1.lab.benchmarks.evaluation import Attempt, EvaluationFolder
from codea1.lab.benchmarks.programs import FILES, evaluate_code
from codea1.lab.sandbox.benchmarks import BenchmarkPool
from codea1.runtime.errors import BadInput
from codea1.runtime.futures import start
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host import ScriptRun
from codea1.sandbox.host.grading import Grader, Grading
from codea1.values.verdict import Verdict
from tests.conftest import done
from tests.evalplus_files import bigcodebench_row, humaneval_row, write_rows

CHECK = "def check(candidate):\n    assert candidate(1) == 2"
UNASKED = SimpleNamespace(call_between_chunks=lambda _: None)  # a policy
RIGHT, WRONG = "def f(x):\n    return x + 1", "def f(x):\n    return x"


def asked(tmp_path: Path, **changes: Any) -> EvaluationSpec:
    """Asks for the programs of c.jsonl on two tasks."""
    usual = EvaluationSpec(
        benchmark="humanevalplus",
        file=str(tmp_path / "he.jsonl"),
        completions=str(tmp_path / "c.jsonl"),
        output=str(tmp_path / "out"),
        sampling=AnswerSampling(samples=3),
        lengths=(120, 16, 8),
        num_tests=2,
    )
    return dataclasses.replace(usual, **changes)


def completions(tmp_path: Path, *programs: tuple[int, str], **second: Any) -> None:
    """Writes programs by task, and the two tasks; `second` are other fields of the second."""
    write_rows(tmp_path / "c.jsonl", *({"task_id": f"HumanEval/{n}", "solution": text} for n, text in programs))
    write_rows(tmp_path / "he.jsonl", humaneval_row(0), humaneval_row(1, **second))


def result(tmp_path: Path, name: str = "humanevalplus") -> dict:
    return json.loads((tmp_path / "out" / "evaluations" / f"{name}_step_000000.json").read_text())


def rows(tmp_path: Path, name: str, benchmark: str = "humanevalplus") -> list[dict]:
    path = tmp_path / "out" / "evaluations" / f"{benchmark}_step_000000" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextmanager
def losing(is_lost: Callable[[str], bool]) -> Iterator[None]:
    """Has the sandbox fail on some programs."""
    run_batch = BenchmarkPool.run_batch

    def run(self: BenchmarkPool, program: str, *rest: Any) -> Future:
        gone = done(ScriptRun(Verdict.INFRA, "gone", 0.0))
        return gone if is_lost(program) else run_batch(self, program, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BenchmarkPool, "run_batch", run)
        yield


def test_completions_are_counted(tmp_path, capsys):
    completions(tmp_path, *[(0, RIGHT), (0, WRONG)] * 4, (1, RIGHT), *[(1, "")] * 7)
    evaluate_code(asked(tmp_path), Hosts())
    whole = result(tmp_path)
    assert whole["split"] == "humanevalplus"
    assert whole["question_ids"] == ["HumanEval/0", "HumanEval/1"]
    names = ["avg_at_8", "pass_at_1", "pass_at_8"]
    assert list(whole["metrics"]) == [*names, *(f"base_{name}" for name in names)]
    assert whole["metrics"]["avg_at_8"]["per_question"] == [0.5, 0.125]
    assert whole["metrics"]["pass_at_8"]["per_question"] == [1.0, 1.0]
    assert "7 of 16 programs are empty and count as failures" in capsys.readouterr().err
    verdicts = [row["verdict"] for row in rows(tmp_path, "results") if row["question_id"] == "HumanEval/0"]
    assert verdicts == ["pass", "fail"] * 4


def test_the_score_by_the_base_inputs_alone_stands_beside(tmp_path):
    small = "def f(x):\n    return x + 1 if x < 9 else 0"  # plus inputs are 10 and -1
    raises = "def f(x):\n    return x + 1 if x < 9 else None + 1"
    completions(tmp_path, (0, RIGHT), (0, small), (0, raises), (0, WRONG), (1, RIGHT), (1, RIGHT), (1, WRONG), (1, ""))
    evaluate_code(asked(tmp_path), Hosts())
    found = {name: each["per_question"] for name, each in result(tmp_path)["metrics"].items()}
    assert (found["avg_at_4"], found["base_avg_at_4"]) == ([0.25, 0.5], [0.75, 0.5])


def test_a_part_is_evaluated_where_that_is_asked_for(tmp_path, capsys):
    completions(tmp_path, (1, RIGHT), (1, WRONG))
    evaluate_code(asked(tmp_path, part=True), Hosts())
    whole = result(tmp_path)
    assert whole["left_out"] == {"HumanEval/0": "no completion was given"}
    assert whole["metrics"]["pass_at_1"]["per_question"] == [None, 0.5]
    assert "humanevalplus, 1 of 2 questions" in capsys.readouterr().out


def test_verdicts_of_another_version_are_told(tmp_path, capsys):
    completions(tmp_path, (0, RIGHT), (1, WRONG))
    for _ in range(2):
        evaluate_code(asked(tmp_path), Hosts())
        assert "was begun with" not in capsys.readouterr().err
    path = tmp_path / "out" / "evaluations" / "humanevalplus_step_000000" / "config.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps(kept | {"made_with": kept["made_with"] | {"python": "3.4"}}))
    evaluate_code(asked(tmp_path), Hosts())
    said = "humanevalplus_step_000000 was begun with python 3.4, here 3."
    assert said in capsys.readouterr().err


def test_an_evaluation_goes_on_where_it_was_killed(tmp_path):
    completions(tmp_path, (0, RIGHT), (1, WRONG))
    evaluate_code(asked(tmp_path), Hosts())
    whole = result(tmp_path)
    results = tmp_path / "out" / "evaluations" / "humanevalplus_step_000000" / "results.jsonl"
    first, second = results.read_text().splitlines()
    results.write_text(f"{first}\n{second[:20]}")  # killed while the second line was written
    with patch.object(EvalPlus, "judge", autospec=True, side_effect=EvalPlus.judge) as judge:
        evaluate_code(asked(tmp_path), Hosts())
    judged = [(question.id, program) for _, question, program in (call.args for call in judge.call_args_list)]
    assert [id for id, program in judged if program in (RIGHT, WRONG)] == ["HumanEval/1"]
    assert result(tmp_path) == whole
    assert len(rows(tmp_path, "attempts")) == len(rows(tmp_path, "results")) == 2


def test_another_evaluation_is_refused_the_folder(tmp_path, model_folder):
    completions(tmp_path, (0, RIGHT), (1, WRONG))
    evaluate_code(asked(tmp_path), Hosts())
    with pytest.raises(BadInput, match=r"evaluated\.model is"):
        evaluate_code(asked(tmp_path, completions="", model=str(model_folder)), Hosts())
    completions(tmp_path, (0, RIGHT), (1, RIGHT))
    with pytest.raises(BadInput, match=r"attempts is .* there and .* here"):
        evaluate_code(asked(tmp_path), Hosts())


def test_another_version_of_the_file_is_another_evaluation(tmp_path):
    completions(tmp_path, (0, RIGHT), (1, RIGHT))
    evaluate_code(asked(tmp_path), Hosts())
    completions(tmp_path, (0, RIGHT), (1, RIGHT), atol=0.5)
    with pytest.raises(BadInput, match=r"file is .* there and .* here"):
        evaluate_code(asked(tmp_path), Hosts())


def test_a_model_that_was_exported_again_is_another_model(tmp_path, model_folder, monkeypatch):
    completions(tmp_path)
    model = tmp_path / "model"
    shutil.copytree(model_folder, model)
    monkeypatch.setattr(evaluation, "policy_of_folder", lambda *_: UNASKED)
    monkeypatch.setattr(programs, "sampled", lambda *_: iter(()))
    wanted = asked(tmp_path, completions="", model=str(model))
    evaluate_code(wanted, Hosts())
    (model / "README.md").write_text("what it is")
    evaluate_code(wanted, Hosts())
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1  # as long as before, with the same header
    weights.write_bytes(content)
    with pytest.raises(BadInput, match=r"weights is .* there and .* here"):
        evaluate_code(wanted, Hosts())


def test_answers_in_another_dtype_are_another_evaluation(tmp_path, model_folder, monkeypatch, capsys):
    completions(tmp_path)
    monkeypatch.setattr(evaluation, "policy_of_folder", lambda *_: UNASKED)
    monkeypatch.setattr(programs, "sampled", lambda *_: iter(()))
    monkeypatch.setattr(evaluation, "fastest_dtype", lambda _: ("float32", "it is faster"))
    wanted = asked(tmp_path, completions="", model=str(model_folder))
    evaluate_code(wanted, Hosts())
    assert "in float32: it is faster" in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr(evaluation, "fastest_dtype", lambda _: ("bfloat16", "it is faster"))
    with pytest.raises(BadInput, match='dtype is "float32" there and "bfloat16" here'):
        evaluate_code(wanted, Hosts())


def test_a_second_process_is_refused_and_the_first_loses_nothing(tmp_path):
    settings = str(tmp_path / "e"), {"benchmark": "b"}, FILES
    with EvaluationFolder.open(*settings) as first:
        with pytest.raises(BadInput, match=r"folder .*/e: another process works there"):
            EvaluationFolder.open(*settings).__enter__()
        first.add("attempts", ("q", 0), {"program": RIGHT})
    with EvaluationFolder.open(*settings) as second:
        assert second.attempts({"q"}) == [Attempt("q", 0, RIGHT)]
        assert second.attempts({"p"}) == []


def test_questions_whose_own_solution_fails_are_left_out_aloud(tmp_path, capsys):
    completions(tmp_path, (0, RIGHT), (1, RIGHT), canonical_solution="    return y\n")
    evaluate_code(asked(tmp_path), Hosts())
    assert result(tmp_path)["metrics"]["avg_at_1"]["per_question"] == [1.0, None]
    assert list(result(tmp_path)["left_out"]) == ["HumanEval/1"]
    assert "HumanEval/1 is left out: its own solution does not pass" in capsys.readouterr().err


def test_a_question_whose_own_solution_is_lost_is_judged_another_time(tmp_path, capsys):
    truth = "    return 1 + x\n"
    completions(tmp_path, (0, RIGHT), (1, RIGHT), (1, WRONG), (0, WRONG), canonical_solution=truth)
    with losing(lambda program: truth in program):
        evaluate_code(asked(tmp_path), Hosts())
    assert result(tmp_path)["metrics"]["avg_at_2"]["per_question"] == [0.5, None]
    assert {row["question_id"] for row in rows(tmp_path, "results")} == {"HumanEval/0"}
    assert "HumanEval/1 is left out: the sandbox failed on its own solution" in capsys.readouterr().err
    evaluate_code(asked(tmp_path), Hosts())
    assert result(tmp_path)["metrics"]["avg_at_2"]["per_question"] == [0.5, 0.5]


@pytest.mark.parametrize("semantics", ["evalplus", "scripts"])
def test_ground_truths_none_of_which_is_judged_are_told_in_one_sentence(tmp_path, monkeypatch, semantics):
    completions(tmp_path, (0, RIGHT), (1, RIGHT))
    if semantics == "scripts":
        questions = [Question(f"q{n}", None, "", "", RIGHT, "f", check_script=CHECK) for n in range(4)]
        crashed = ScriptRun(Verdict.ERROR, "script exited with status 1", 0.0)
        monkeypatch.setattr(CheckScripts, "judge", lambda *_: done(crashed))
        monkeypatch.setattr(programs, "load_benchmark", lambda *_: CheckScripts("he", questions, None))
        monkeypatch.setattr(programs, "given_attempts", lambda *_: [Attempt(each.id, 0, RIGHT) for each in questions])
    else:
        write_rows(tmp_path / "he.jsonl", *map(humaneval_row, range(4)))
    told = r"all 4 ground truths of h.* not theirs: .*(infra: gone|script exited with status 1);"
    with losing(lambda program: True), pytest.raises(BadInput, match=told):
        evaluate_code(asked(tmp_path, part=True, completions="ground_truth"), Hosts())


def test_programs_none_of_which_is_judged_stop_the_evaluation_which_can_go_on(tmp_path):
    completions(tmp_path, (0, RIGHT), (0, WRONG), (0, ""), (1, RIGHT), (1, f"{WRONG}  # 2"), (1, f"{WRONG}  # 3"))
    truth = "    return x + 1  # canonical\n"
    write_rows(tmp_path / "he.jsonl", *(humaneval_row(number, canonical_solution=truth) for number in range(2)))
    told = r"all 5 programs for humanevalplus failed .* not theirs: base: gone;"
    with losing(lambda program: truth not in program), pytest.raises(BadInput, match=told):
        evaluate_code(asked(tmp_path), Hosts())
    evaluate_code(asked(tmp_path), Hosts())
    assert result(tmp_path)["metrics"]["pass_at_1"]["per_question"] == [pytest.approx(1 / 3)] * 2


def test_what_was_asked_of_a_question_left_out_now_stands_for_no_other(tmp_path, model_folder, monkeypatch):
    truth = "    return 1 + x\n"
    completions(tmp_path, canonical_solution=truth)
    wanted = asked(tmp_path, completions="", model=str(model_folder), sampling=AnswerSampling(samples=1))
    monkeypatch.setattr(evaluation, "policy_of_folder", lambda *_: UNASKED)
    monkeypatch.setattr(programs, "sampled", lambda _, questions, *__: (Attempt(q.id, 0, RIGHT) for q in questions))
    for broken, values in (("    return x + 1\n", [None, 1.0]), (truth, [1.0, None])):
        with losing(lambda program, broken=broken: broken in program):
            evaluate_code(wanted, Hosts())
        assert result(tmp_path)["metrics"]["avg_at_1"]["per_question"] == values


def test_where_nothing_can_be_judged_one_sentence_says_so(tmp_path):
    completions(tmp_path, (0, RIGHT))
    write_rows(tmp_path / "he.jsonl", humaneval_row(0, canonical_solution="    return y\n"))
    with pytest.raises(BadInput, match="no question of humanevalplus can be judged here; HumanEval/0: its own"):
        evaluate_code(asked(tmp_path), Hosts())


def test_bigcodebench_end_to_end(tmp_path):
    write_rows(tmp_path / "b.jsonl", bigcodebench_row(0), bigcodebench_row(1))
    answers = ["    return statistics.mean(numbers)", "    return 0"]
    rows = ({"task_id": f"BigCodeBench/{i}", "completion": answer} for i, answer in enumerate(answers))
    write_rows(tmp_path / "c.jsonl", *rows)
    evaluate_code(asked(tmp_path, benchmark="bigcodebench_complete_hard", file=str(tmp_path / "b.jsonl")), Hosts())
    assert result(tmp_path, "bigcodebench_complete_hard")["metrics"]["avg_at_1"]["per_question"] == [1.0, 0.0]


def test_a_model_is_asked_only_for_what_is_missing(tmp_path, model_folder):
    completions(tmp_path)
    wanted = asked(tmp_path, completions="", model=str(model_folder))
    evaluate_code(wanted, Hosts())
    folder = tmp_path / "out" / "evaluations" / "humanevalplus_step_000000"
    attempts = sorted(folder.joinpath("attempts.jsonl").read_text().splitlines())
    assert len(attempts) == 6
    kept = [line for line in attempts if '"index":1' not in line]
    for name in ("attempts", "results"):
        lines = folder.joinpath(f"{name}.jsonl").read_text().splitlines(keepends=True)
        folder.joinpath(f"{name}.jsonl").write_text("".join(line for line in lines if '"index":1' not in line))
    assert len(kept) == 4
    evaluate_code(wanted, Hosts())
    assert sorted(folder.joinpath("attempts.jsonl").read_text().splitlines()) == attempts
    with pytest.raises(BadInput, match=r"samples is 3 there and 4 here"):
        evaluate_code(dataclasses.replace(wanted, sampling=AnswerSampling(samples=4)), Hosts())


def test_sampling_shows_how_far_it_is(tmp_path, model_folder, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "SECONDS_BETWEEN_LINES", 0.0)
    completions(tmp_path)
    evaluate_code(asked(tmp_path, completions="", model=str(model_folder), lengths=(600, 16, 8)), Hosts())
    lines = [line for line in capsys.readouterr().err.splitlines() if line.endswith(" tokens")]
    assert lines[0] == "programs for humanevalplus: 0 of 6, 0 tokens"
    drawn = [int(line.split()[-2].replace(",", "")) for line in lines]
    assert drawn == sorted(drawn)
    assert drawn[-1] > 0


def test_prompts_that_do_not_fit_are_failures(tmp_path, model_folder):
    completions(tmp_path)
    evaluate_code(asked(tmp_path, completions="", model=str(model_folder), lengths=(3, 4, 8)), Hosts())
    assert result(tmp_path)["metrics"]["avg_at_3"]["per_question"] == [0.0, 0.0]


def choosing(
    patch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Any, given: Sequence[Sequence[str]], suites: Sequence[str]
) -> EvaluationSpec:
    """Asks for a choice among programs of each question, by suites for the first of those that are not empty."""
    completions(tmp_path)
    attempts = [Attempt(f"HumanEval/{n}", i, text) for n, texts in enumerate(given) for i, text in enumerate(texts)]
    of_folder, written = evaluation.policy_of_folder, iter(suites)
    patch.setattr(evaluation, "policy_of_folder", lambda role, *_: UNASKED if role == "code" else of_folder(role, *_))
    patch.setattr(programs, "sampled", lambda *_: iter(attempts))
    if suites:
        patch.setattr(
            best_of_n, "ask_for_asserts", lambda wanted, *_, **__: ((key, next(written)) for key, *_ in wanted)
        )
    sampling, model = AnswerSampling(samples=len(given[0])), str(model_folder)
    return asked(tmp_path, completions="", model=model, best_of=model, sampling=sampling)


def choice(tmp_path: Path, samples: int) -> tuple[list[float | None], list[tuple[int, int]]]:
    """Whether the chosen program of each question is right; and how many of how many tests each program passes."""
    name = f"humanevalplus_best_of_{samples}"
    chosen = result(tmp_path, name)["metrics"]["pass_at_1"]["per_question"]
    return chosen, [(row["passed"], row["tests"]) for row in rows(tmp_path, "choices", name)]


def test_best_of_n_end_to_end(tmp_path, model_folder, monkeypatch):
    given = [[WRONG, RIGHT, f"{RIGHT}  # too"], [WRONG, RIGHT, ""]]
    written = ["assert f(1) == 2\nassert f(2) == 3", "assert f(0) == 1", "", "assert f(1) == 1", ""]
    wanted = choosing(monkeypatch, tmp_path, model_folder, given, written)
    evaluate_code(wanted, Hosts())
    # The right tests choose a right program, and the wrong one a wrong program.
    expected = [1.0, 0.0], [(0, 3), (3, 3), (3, 3), (1, 1), (0, 1), (0, 1)]
    assert choice(tmp_path, 3) == expected
    evaluate_code(wanted, Hosts())  # `written` has no more to give
    assert choice(tmp_path, 3) == expected
    with pytest.raises(BadInput, match=r"num_tests is 2 there and 3 here"):
        evaluate_code(dataclasses.replace(wanted, num_tests=3), Hosts())


@pytest.mark.parametrize("marked", ["two", "f"])  # one program, or all
def test_choices_that_the_sandbox_lost_are_made_another_time(tmp_path, model_folder, monkeypatch, capsys, marked):
    given = [[WRONG, RIGHT], [WRONG, f"{RIGHT}  # two"]]
    wanted = choosing(monkeypatch, tmp_path, model_folder, given, ["assert f(1) == 2"] * 4)
    grade = Grader.grade

    def losing_grade(self: Grader, program: str, tests: Sequence, *others: Any) -> Future:
        lost = Grading(None, [Verdict.INFRA] * len(tests), [""], 0.0)
        return done(lost) if marked in program else grade(self, program, tests, *others)

    with monkeypatch.context() as patch:
        patch.setattr(Grader, "grade", losing_grade)
        if marked == "f":
            with pytest.raises(BadInput, match=r"all 4 programs to choose from failed .*: the sandbox failed;"):
                evaluate_code(wanted, Hosts())
        else:
            evaluate_code(wanted, Hosts())
            assert choice(tmp_path, 2) == ([1.0, None], [(0, 1), (1, 1)])
            assert "the sandbox failed on 1 programs to choose from" in " ".join(capsys.readouterr().err.split())
    evaluate_code(wanted, Hosts())
    assert choice(tmp_path, 2) == ([1.0, 1.0], [(0, 1), (1, 1)] * 2)


def test_a_test_llm_writes_a_suite_beside_each_program_that_fits(tmp_path, model_folder, monkeypatch, capsys):
    monkeypatch.setattr(evaluation, "DEFAULT", TINY)  # the shorter prompts
    given = [[RIGHT, ""], [WRONG, RIGHT + " # x" * 100]]
    evaluate_code(choosing(monkeypatch, tmp_path, model_folder, given, []), Hosts())
    assert "1 programs do not fit into the Test LLM's prompt and get no suite" in capsys.readouterr().err
    written = {(row["question_id"], row["index"]) for row in rows(tmp_path, "suites", "humanevalplus_best_of_2")}
    assert written == {("HumanEval/0", 0), ("HumanEval/1", 0)}
    assert choice(tmp_path, 2) == ([1.0, 0.0], [(0, 0)] * 4)  # the first of equals


def test_stated_answers_are_taken_at_their_word():
    texts = ["assert f(1) == 2\nassert f(1) == 3\nassert f(5) == 6", "assert f(1) == 2\nassert g(1) == 1", "nothing"]
    assert [test.text for test in different_tests(texts, "f", 2)] == ["assert f(1) == 2", "assert f(1) == 3"]
    assert [test.text for test in different_tests(["assert not f(2)"], "f", 2)] == ["assert not f(2)"]


def test_tests_are_counted_per_program():
    tests = different_tests(["assert f(1) == 2\nassert f(2) == 2"], "f", 8)
    programs = [RIGHT, WRONG, "", "def f(x): return 2"]
    with BenchmarkPool(2, isolation="auto") as pool:
        judge = Judge(Question("q", None, "", "", "", "f"), Grader(pool))
        assert start(count_passes(programs, tests, judge)).result(60) == [1, 1, 0, 2]
