"""The published numbers of studies/paper.toml: each is rebuilt from its parts, and has a cell."""

import pytest

from codea1.lab.study.experiments import PAPER

LAYOUTS = {table.name: table for table in PAPER.tables()}

TABLES = {
    name: LAYOUTS[name] for name in ("code_generation", "test_generation", "alpha", "golden_source", "collaboration")
}
ROUNDING = 0.0101  # half a last digit of the result, and as much of its parts
CELLS = [(name, size, row) for name, table in TABLES.items() for size, rows in table.published.items() for row in rows]


def row_of(name: str, size: str, row: str):
    return TABLES[name].published[size][row]


@pytest.mark.parametrize(("name", "size", "row"), CELLS)
def test_averages_and_products_are_those_of_the_published_parts(name: str, size: str, row: str):
    table = TABLES[name]
    numbers = {column.key: table.published_number(size, row, column.key) for column in table.columns}
    rebuilt = 0
    if "average" in numbers:
        parts = [numbers[key] for key in ("humanevalplus", "mbppplus", "bigcodebench")]
        assert numbers["average"] == pytest.approx(sum(parts) / 3, abs=ROUNDING)
        rebuilt += 1
    if "ult_mul" in numbers:
        assert numbers["ult_mul"] == pytest.approx(numbers["ult_pass"] * numbers["ult_mut"] / 100, abs=ROUNDING)
        rebuilt += 1
    assert rebuilt


def test_tables_that_share_a_row_agree():
    assert row_of("golden_source", "1.5b", "golden") == row_of("code_generation", "1.5b", "golden")
    for row in ("base", "code_a1"):
        assert row_of("collaboration", "3b", row) == row_of("code_generation", "3b", row)
    assert row_of("alpha", "1.5b", "code_a1")[3:] == row_of("test_generation", "1.5b", "code_a1")


def test_published_tables_have_the_papers_columns():
    code, test = ["humanevalplus", "mbppplus", "bigcodebench", "average"], ["ult_pass", "ult_mut", "ult_mul"]
    found = {name: [column.key for column in table.columns] for name, table in TABLES.items()}
    assert found == {
        "code_generation": code,
        "test_generation": test,
        "alpha": [*code[:3], *test],
        "golden_source": code,
        "collaboration": code,
    }


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=lambda each: each.name)
def test_every_published_number_has_a_cell(layout):
    lines = {line.key for line in layout.lines}
    assert all(set(line.against) <= lines for line in layout.lines)
    for rows in layout.published.values():
        assert set(rows) <= lines
        assert all(len(values) == len(layout.columns) for values in rows.values())


def test_what_was_not_published_is_none():
    assert LAYOUTS["alpha"].published_number("3b", "code_a1", "humanevalplus") is None
    assert LAYOUTS["code_generation"].published_number("tiny", "base", "average") is None
    assert LAYOUTS["ablations"].published_number("1.5b", "code_a1", "average") is None
