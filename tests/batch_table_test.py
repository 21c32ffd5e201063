"""The numbers of a step against the paper's run, counted by hand, as the table shows them."""

import io

from ml_collections import ConfigDict
from rich.console import Console

from codea1.config_file import default_config, validate
from codea1.lab.dry_run import batch_table
from codea1.learn.batch import row_shapes

ROW_SHAPES = {"code": row_shapes((2048,), 8192, max_rows=16), "test": row_shapes((), 12288, max_rows=48)}


def shown(config: ConfigDict) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(batch_table(validate(config), 600, ROW_SHAPES))
    return [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]


def test_the_papers_step_and_run():
    lines = shown(default_config())  # 256 questions, M = N = 8, suites of one solution train, 2 mini-batches
    for line in (
        "questions 256 256",
        "prompts 256 2,048",
        "samples 2,048 solutions 16,384 suites",
        "tokens generated, at most 8,388,608 67,108,864",
        "sequences trained, at most 2,048 2,048",
        "tokens trained, at most 16,777,216 25,165,824",
        "mini-batches 2 of 1,024 2 of 1,024",
        "micro-batches, at most 128 44",  # 1024 sequences are 21 full micro-batches of 48 and a third of one
        "rows x tokens of one 64 x 2048, 16 x 8192 48 x 12288",
        "over 111 steps (55.50 epochs): optimizer steps 222 222",  # two whole batches in 600 questions
        "over 111 steps: samples 227,328 1,818,624",
    ):
        assert line in lines, line


def test_one_policy_has_the_samples_of_both_roles():
    config = default_config()
    config.method = "self_play"
    lines = shown(config)
    for line in ("prompts 2,304", "samples 18,432 solutions and suites", "mini-batches 2 of 2,048"):
        assert any(each.startswith(line) for each in lines), line
    assert any(each.startswith("micro-batches, at most 256") for each in lines)


def test_a_frozen_policy_learns_from_nothing():
    config = default_config()
    config.frozen = "test"
    lines = shown(config)
    for line in (
        "sequences trained, at most 2,048 0",
        "mini-batches 2 of 1,024 0",
        "micro-batches, at most 128 0",
        "over 111 steps (55.50 epochs): optimizer steps 222 0",
    ):
        assert line in lines, line
