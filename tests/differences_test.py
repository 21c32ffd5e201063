"""docs/differences.md names fields that are there, with values that a run may have."""

import re
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from codea1.config_file import default_config, validate
from codea1.runtime.errors import BadInput

PAGE = Path(__file__).parents[1] / "docs" / "differences.md"
_FIELD = re.compile(r"`config\.([a-z_0-9.]+)(?:=([^`]*))?`")
_COLUMNS = 5


def rows(text: str) -> list[list[str]]:
    """The cells of each row of the page's table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def value_at(config: ConfigDict, field: str) -> Any:
    for name in field.split("."):
        assert name in config, f"config.{field} is not there"
        config = config[name]
    return config


def take_back(cell: str) -> None:
    """Fails unless the last column's cell says `none`, or values that are there to be set."""
    switches = _FIELD.findall(cell)
    if not switches:
        assert cell.startswith("none"), cell
        return
    config = default_config()
    for field, text in switches:
        known = value_at(config, field)
        value = {"True": True, "False": False}[text] if isinstance(known, bool) else type(known)(text)
        assert (value == known) == cell.startswith("default"), f"{cell}: the default of config.{field} is {known}"
        config.update_from_flattened_dict({field: value})
    validate(config)


def test_every_difference_says_all_of_it():
    table = rows(PAGE.read_text())
    assert len(table) > 40
    for cells in table:
        assert len(cells) == _COLUMNS, cells
        assert all(cells), cells
    topics = [cells[0] for cells in table]
    assert len(set(topics)) == len(topics)


def test_every_field_is_there():
    fields = {field for field, _ in _FIELD.findall(PAGE.read_text())}
    assert len(fields) > 20
    for field in fields:
        value_at(default_config(), field)


@pytest.mark.parametrize("cells", rows(PAGE.read_text()), ids=lambda cells: cells[0])
def test_what_takes_a_difference_back_can_be_set(cells):
    take_back(cells[-1])


@pytest.mark.parametrize(
    "cell",
    [
        "`config.game.no_such_field=1`",
        "`config.game.reward=no_such_reward`",
        "`config.checkpoint.keep_best=-1`",
        "`config.checkpoint.keep_best=1`",  # it is the default
        "default `config.checkpoint.keep_best=0`",  # it is not
        "`config.game.mistake_book=no`",
        "game.prompts",
    ],
)
def test_a_stale_switch_is_found(cell):
    with pytest.raises((AssertionError, BadInput, KeyError)):
        take_back(cell)


def test_links_lead_to_files():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE.read_text())
    assert links
    for link in links:
        assert (PAGE.parent / link).exists(), link
