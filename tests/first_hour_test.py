"""The pages of the first hour do what they say: their files and commands, in order, print what they show."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.host_processes import CACHE

PAGES = sorted((ROOT / "docs" / "first_hour").glob("*.md"))
BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
OWN_NUMBERS = "another machine prints other numbers"  # the title of what training prints


def words(line: str, with_numbers: bool) -> str:
    """A line as it is compared: without the widths of columns, and where they are its own, without its numbers."""
    return " ".join((line if with_numbers else re.sub(r"[-+]?\d[\d.,:]*", "0", line)).split())


def test_the_pages_print_what_they_show(tmp_path: Path):
    (tmp_path / "results").symlink_to(ROOT / "results")
    folder = tmp_path / "runs" / "hour"
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    environment = {**os.environ, **CACHE, "PATH": path, "COLUMNS": "120"}
    printed, at = "", tmp_path
    assert [page.name[0] for page in PAGES] == [*"123456"]
    for page in PAGES:
        for kind, title, text in BLOCK.findall(page.read_text()):
            if kind == "python":
                (at / title).write_text(text)
            elif kind == "sh":
                run = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", text], cwd=at, env=environment, capture_output=True, text=True
                )
                assert run.returncode == 0, f"{page.name}: {text}{run.stdout}{run.stderr}"
                printed, at = run.stdout, folder
            elif kind == "text":
                rest = iter(words(line, title != OWN_NUMBERS) for line in printed.splitlines())
                for line in text.splitlines():
                    shown = words(line, title != OWN_NUMBERS)
                    assert any(shown in each for each in rest), f"{page.name}: {line!r} is not in\n{printed}"


def test_a_page_is_short():
    for page in PAGES:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert len(prose.split()) < 500, page.name
