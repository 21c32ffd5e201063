"""Rows to questions: which program a row means, what is under test, and how a bad row is reported."""

import ast
import bz2
import gzip
import json
import lzma
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from codea1.data import rows
from codea1.data.loader import complete_program, entry_point, load_questions
from codea1.runtime.errors import BadInput
from tests.conftest import SHARED

OFFICIAL = SHARED / "data" / "humanevalplus_mbppplus.parquet"


def validation_row(**changes) -> dict:
    row = {
        "prompt": [{"role": "system", "content": "Be good."}, {"role": "user", "content": "Question:\nignored"}],
        "description": "Add one.",
        "GT_code": "    return n + 1\n",
        "problem": 'def more(n):\n    """Add one."""\n',
        "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        "data_source": "humanevalplus",
        "extra_info": {
            "function_declaration": "def more(n)",
            "function_name": "more",
            "imports": "",
            "question_id": "H/1",
        },
    }
    return {**row, **changes}


def training_row(**changes) -> dict:
    row = {
        "prompt": [{"role": "user", "content": "Complete it.\n\nQuestion:\nWrite twice(n).\nIt doubles."}],
        "clean_description": "Double n.",
        "GT_code": "def half(n):\n    return n / 2\n\ndef twice(n):\n    return 2 * n",
        "GT_test": ["assert twice(1) == 2", "assert twice(0) == 0"],
        "data_source": "kodcode_light",
        "extra_info": {
            "function_declaration": "def twice(n)",
            "function_name": "twice",
            "imports": "",
            "question_id": "K_1",
        },
    }
    return {**row, **changes}


def write(folder: Path, kind: str, rows: list[dict]) -> str:
    path = folder / f"rows.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


CHECKER = "def accepts(given, expected, printed):\n    return True"
METHOD = "class Solution:\n    def twice(self, n):\n        return 2 * n\n"


def extra_info(name: str) -> dict:
    return {**training_row()["extra_info"], "function_name": name}


def test_rows_of_methods_and_of_whole_programs(tmp_path):
    method = training_row(GT_code=METHOD, extra_info=extra_info("Solution().twice"), preamble="import math")
    program = training_row(GT_code="print(2 * int(input()))", extra_info=extra_info("stdout") | {"question_id": "K_2"})
    one, other = load_questions(write(tmp_path, "jsonl", [method, program]))
    assert (one.entry_point, one.preamble, one.ground_truth) == ("Solution().twice", "import math", METHOD)
    assert (one.form, other.entry_point, other.form, other.checker) == ("class", "stdout", "program", "")
    (checked,) = load_questions(write(tmp_path, "parquet", [program | {"checker": CHECKER}]))
    assert checked.checker == CHECKER


def of_stdout(**changes) -> dict:
    return {"extra_info": extra_info("stdout"), **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"GT_code": METHOD, "extra_info": extra_info("Solution().half")}, "does not define Solution().half"),
        ({"GT_code": "def twice(n): 0", "extra_info": extra_info("Solution().twice")}, "not define Solution().twice"),
        (of_stdout(GT_code="print("), "does not parse"),
        ({"extra_info": extra_info("stdout_numbers")}, "'stdout_numbers' is none of stdout, stdout_tokens, stdout_any"),
        ({"checker": CHECKER}, "it has a checker, and its function_name 'twice' is none of stdout, "),
        ({"checker": [CHECKER]}, "checker is not text"),
        (of_stdout(checker="def accepts("), "its checker does not parse as Python"),
        (of_stdout(checker="def check(): 0"), "its checker does not define accepts(given, expected, printed)"),
        ({"preamble": 3}, "preamble is not text"),
    ],
)
def test_a_bad_row_of_a_method_or_program_is_named(tmp_path, changes, message):
    with pytest.raises(BadInput, match=rf"line 1 \(K_1\): .*{re.escape(message)}"):
        load_questions(write(tmp_path, "jsonl", [training_row(**changes)]))


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_validation_file(tmp_path, kind):
    (question,) = load_questions(write(tmp_path, kind, [validation_row()]))
    assert question.id == "H/1"
    assert question.prompt == tuple(validation_row()["prompt"])
    assert question.ground_truth == 'def more(n):\n    """Add one."""\n    return n + 1\n'
    assert (question.problem, question.description) == (validation_row()["problem"], "Add one.")
    assert (question.entry_point, question.check_script) == ("more", validation_row()["test"])
    assert (question.golden_tests, question.mutants, question.data_source) == ((), (), "humanevalplus")


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_training_file(tmp_path, kind):
    (question,) = load_questions(write(tmp_path, kind, [training_row()]))
    assert (question.problem, question.description) == ("Write twice(n).\nIt doubles.", "Double n.")
    assert (question.entry_point, question.ground_truth) == ("twice", training_row()["GT_code"])
    assert question.golden_tests == ("assert twice(1) == 2", "assert twice(0) == 0")
    assert question.check_script is None


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_limit_takes_the_first_rows(tmp_path, kind):
    rows = [training_row(extra_info={**training_row()["extra_info"], "question_id": f"K_{i}"}) for i in range(600)]
    path = write(tmp_path, kind, rows)
    assert [question.id for question in load_questions(path)] == [f"K_{i}" for i in range(600)]
    assert [question.id for question in load_questions(path, limit=2)] == ["K_0", "K_1"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"GT_code": None}, r"\(H/1\): there is no ground truth"),
        ({"GT_code": "  \n"}, r"\(H/1\): there is no ground truth"),
        ({"GT_code": ""}, r"\(H/1\): there is no ground truth in GT_code, which all but method=golden needs"),
        ({"GT_code": "    return (\n"}, r"\(H/1\): its ground truth does not parse"),
        ({"GT_code": "def less(n):\n    return n"}, r"\(H/1\): .* does not define .* 'more'"),
        ({"test": "assert more(1) == 2"}, r"\(H/1\): its test defines no function check"),
        ({"description": None}, "column 'clean_description' or 'description' is missing"),
        ({"extra_info": {"function_name": "more", "question_id": None}}, "no question_id"),
    ],
)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_bad_rows_are_refused_with_file_row_and_question(tmp_path, kind, changes, complaint):
    good = validation_row(extra_info={**validation_row()["extra_info"], "question_id": "H/0"})
    path = write(tmp_path, kind, [good, validation_row(**changes)])
    with pytest.raises(BadInput, match=complaint) as refusal:
        load_questions(path)
    assert str(refusal.value).startswith(f"{path}, {'line 2' if kind == 'jsonl' else 'row 1'}")


@pytest.mark.parametrize("column", ["prompt", "GT_code", "data_source", "extra_info"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_missing_column_is_named(tmp_path, kind, column):
    row = validation_row()
    del row[column]
    with pytest.raises(BadInput, match=rf"rows\.{kind}, .*column '{column}' is missing"):
        load_questions(write(tmp_path, kind, [row]))


PROMPTS = ("text", [], [{"role": "user"}], [{"role": "user", "content": 3}], ["text"])
NO_TEXTS = (5, {"a": "b"}, ["x = 1", None])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        *(({"prompt": prompt}, "the prompt") for prompt in PROMPTS),
        *(({"GT_test": value}, "GT_test is neither text nor a list of texts") for value in NO_TEXTS),
        *(({"mutants": value}, "mutants is neither text nor a list of texts") for value in NO_TEXTS),
    ],
)
def test_malformed_columns_are_refused(tmp_path, changes, complaint):
    with pytest.raises(BadInput, match=rf"line 1 \(H/1\): {complaint}"):
        load_questions(write(tmp_path, "jsonl", [validation_row(**changes)]))


@pytest.mark.parametrize("column", ["", [""], [" \n"]])
def test_a_blank_text_is_no_mutant_and_no_test(tmp_path, column):
    (question,) = load_questions(write(tmp_path, "jsonl", [validation_row(mutants=column, GT_test=column)]))
    assert (question.mutants, question.golden_tests) == ((), ())


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_repeated_id_is_refused(tmp_path, kind):
    with pytest.raises(BadInput, match="question H/1 comes twice"):
        load_questions(write(tmp_path, kind, [validation_row(), validation_row()]))


COMPRESSED = gzip.compress(json.dumps([validation_row()] * 100).encode())
FLIPPED = COMPRESSED[:40] + bytes(byte ^ 255 for byte in COMPRESSED[40:60]) + COMPRESSED[60:]
LONG = json.dumps(validation_row()) + "\n" + json.dumps({"prompt": "x" * 1000})


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("no.parquet", None, "no.parquet does not exist"),
        ("no.jsonl", None, "no.jsonl does not exist"),
        ("empty.jsonl", b"", "holds no question"),
        ("text.parquet", b"not parquet", "not a Parquet file"),
        ("text.jsonl", b"{", "line 1: not JSON"),
        ("text.jsonl", b"1", "line 1: not a JSON object"),
        ("text.jsonl", b"\n \r\n{}", "line 3: the column 'prompt' is missing"),  # blank lines are passed over
        ("cut.json.gz", COMPRESSED[: len(COMPRESSED) // 2], r"cut\.json\.gz is a damaged gzip file: "),
        ("flipped.json.gz", FLIPPED, r"flipped\.json\.gz is a damaged gzip file: "),
        ("text.jsonl", b"\x28\xb5\x2f\xfd\x00", r"text\.jsonl is compressed by zstd: decompress it first"),
        ("text.jsonl", lzma.compress(b"{}"), "is compressed by xz"),
        ("text.jsonl", bz2.compress(b"{}"), "is compressed by bzip2"),
        ("text.jsonl", "{}".encode("utf-16"), "is UTF-16 by its byte order mark: write it as UTF-8"),
        ("long.jsonl", LONG.encode(), r"long\.jsonl, line 2: longer than 1,000 bytes"),
    ],
)
def test_missing_empty_foreign_and_damaged_files_are_refused(tmp_path, monkeypatch, name, content, complaint):
    monkeypatch.setattr(rows, "_MAX_LINE", 1000)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=complaint):
        load_questions(str(tmp_path / name))


def test_what_is_called_otherwise_than_it_is_is_refused(tmp_path):
    Path(write(tmp_path, "parquet", [validation_row()])).rename(tmp_path / "misnamed.jsonl")
    with pytest.raises(BadInput, match=r"misnamed\.jsonl is a Parquet file, and is not called so"):
        load_questions(str(tmp_path / "misnamed.jsonl"))
    with pytest.raises(BadInput, match="'kodcode' is neither 'procedural' nor"):
        load_questions("kodcode")


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl", "rows.json.gz", "rows.jsonl.gz"])
@pytest.mark.parametrize("as_array", [False, True])
def test_lines_and_arrays_are_read_plain_or_gzipped_whatever_they_are_called(tmp_path, name, as_array):
    questions = [validation_row(extra_info={"question_id": f"H/{n}", "function_name": "more"}) for n in range(3)]
    text = json.dumps(questions, indent=1) if as_array else "".join(json.dumps(row) + "\n" for row in questions)
    content = text.encode("utf-8-sig" if "jsonl" in name else "utf-8")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert [question.id for question in load_questions(str(tmp_path / name))] == ["H/0", "H/1", "H/2"]


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_a_file_that_the_system_does_not_open_is_no_damaged_one(tmp_path, kind):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=rf"file/rows\.{kind} cannot be read: Not a directory\."):
        load_questions(str(tmp_path / "file" / f"rows.{kind}"))


@pytest.mark.filterwarnings("ignore:invalid escape")
@pytest.mark.skipif(not OFFICIAL.exists(), reason="the official validation file is not here")
def test_official_validation_file():
    questions = {question.id: question for question in load_questions(str(OFFICIAL))}
    assert len(questions) == 353
    for question in questions.values():
        defined = [node.name for node in ast.parse(question.ground_truth).body if isinstance(node, ast.FunctionDef)]
        assert question.entry_point in defined
        assert f"def {question.entry_point}(" in question.problem  # not a helper that only the ground truth has
    assert questions["HumanEval/32"].entry_point == "find_zero"
    assert questions["HumanEval/38"].entry_point == "decode_cyclic"
    # Rows whose function_name, and whose check's parameter, are a helper's.
    for id, name in {
        "MBPP/123": "amicable_numbers_sum",
        "MBPP/301": "dict_depth",
        "MBPP/592": "sum_Of_product",
        "MBPP/751": "check_min_heap",
        "MBPP/797": "sum_in_range",
    }.items():
        assert questions[id].entry_point == name


HELPED = "def helper(x):\n    return x + 1\n\ndef total(a):\n    return sum(map(helper, a))\n"


def test_a_whole_ground_truth_is_the_program():
    assert complete_program("def total(a):\n'''Sum up.'''", HELPED) == (HELPED, None)


def test_a_bare_body_completes_the_last_function_of_the_problem():
    problem = 'import math\n\ndef poly(x):\n    return x\n\n\ndef root(a):\n    """Find it."""\n'
    body = "    def step(x):\n        return x\n    return step(math.sqrt(a))\n\ndef after():\n    pass\n"
    program, completed = complete_program(problem, body)
    assert program == problem + body
    assert completed == "root"
    script = "def check(candidate):\n    assert candidate(4) == 2"
    assert entry_point(program, completed, script, "poly") == "root"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def f(:\n", "does not parse"),
        ("x = 3\n", "defines no function"),
        ("def f():\n  return '\0'", "does not parse"),
    ],
)
def test_a_ground_truth_that_is_no_program_is_refused(code, reason):
    with pytest.raises(ValueError, match=reason):
        complete_program("Add two numbers.", code)


TREES = "def check(candidate):\n    assert candidate([helper(1)]) == helper(2)"
OF_OTHERS = "def check(helper):\n    for inp in [[1]]:\n        assertion(total(*inp), 2)"
OF_PARAMETER = "def check(total):\n    a = [helper(1)]\n    assert total(a) == 3"
OWN_HELPER = "def helper(x):\n    return x\n\ndef check(candidate):\n    assert helper(candidate([1])) == 2"
OF_CHECK = "def check(check):\n    assert check(1) == 2"


@pytest.mark.parametrize(
    ("program", "script", "said", "under_test"),
    [
        (HELPED, "def check(total):\n    assert total([1]) == 2", "helper", "total"),
        (HELPED, OF_OTHERS, "helper", "total"),
        # As in LeetCode rows, which build trees, and in HumanEval/32, 38 and 50, which check by the inverse.
        (HELPED, TREES, "total", "total"),
        (HELPED, OF_PARAMETER, "helper", "total"),
        (HELPED, OWN_HELPER, "total", "total"),
        ("def check(n):\n    return n + 1", OF_CHECK, "check", "check"),
        ("def g(n):\n    return n\n\ndef check(n):\n    return g(n)", OF_CHECK, "g", "check"),
        (HELPED, None, "total", "total"),  # without a script the row says it
    ],
)
def test_the_script_tests_what_it_calls(program, script, said, under_test):
    assert entry_point(program, None, script, said) == under_test


@pytest.mark.parametrize(
    ("script", "said", "reason"),
    [
        ("def check(candidate):\n    assert candidate(helper(1)) == 3", "average", "'average'"),
        (None, "average", "'average'"),
        ("def test():\n    pass", "total", "no function check"),
        ("def check(helper):\n    total(", "total", "does not parse"),
    ],
)
def test_a_script_that_cannot_judge_is_refused(script, said, reason):
    with pytest.raises(ValueError, match=reason):
        entry_point(HELPED, None, script, said)
