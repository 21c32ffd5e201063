import pytest

from codea1.lab.paper import layouts
from codea1.lab.paper.layouts import CODE, LAYOUTS, TEST

TABLES = {
    "code": layouts.CODE_GENERATION,
    "test": layouts.TEST_GENERATION,
    "alpha": layouts.ALPHA,
    "golden_source": layouts.GOLDEN_SOURCE,
    "collaboration": layouts.COLLABORATION,
}
ROUNDING = 0.0101  # half a last digit of the result, and as much of its parts
CELLS = [(name, *row) for name, table in TABLES.items() for row in table.rows]


@pytest.mark.parametrize(("name", "size", "row"), CELLS)
def test_averages_and_products_are_those_of_the_published_parts(name: str, size: str, row: str):
    table = TABLES[name]
    rebuilt = 0
    if "average" in table.columns:
        parts = [table.value(size, row, column.key) for column in CODE[:3]]
        assert table.value(size, row, "average") == pytest.approx(sum(parts) / 3, abs=ROUNDING)
        rebuilt += 1
    if "ult_mul" in table.columns:
        right, killed = (table.value(size, row, column.key) for column in TEST[:2])
        assert table.value(size, row, "ult_mul") == pytest.approx(right * killed / 100, abs=ROUNDING)
        rebuilt += 1
    assert rebuilt


def test_tables_that_share_a_row_agree():
    code, source, together = layouts.CODE_GENERATION, layouts.GOLDEN_SOURCE, layouts.COLLABORATION
    assert source.rows["1.5b", "golden"] == code.rows["1.5b", "golden"]
    for row in ("base", "code_a1"):
        assert together.rows["3b", row] == code.rows["3b", row]
    assert layouts.ALPHA.rows["1.5b", "code_a1"][3:] == layouts.TEST_GENERATION.rows["1.5b", "code_a1"]


@pytest.mark.parametrize("layout", [each for each in LAYOUTS.values() if each.published], ids=lambda each: each.name)
def test_every_published_number_has_a_cell(layout):
    lines = {line.key for line in layout.lines}
    columns = {column.key for column in layout.columns}
    assert {row for _, row in layout.published.rows} <= lines
    assert set(layout.published.columns) <= columns
    assert all(set(line.against) <= lines for line in layout.lines)
    assert all(len(values) == len(layout.published.columns) for values in layout.published.rows.values())


def test_what_was_not_published_is_none():
    assert layouts.ALPHA.value("3b", "code_a1", "humanevalplus") is None
    assert layouts.CODE_GENERATION.value("tiny", "base", "average") is None
