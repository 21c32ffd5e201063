"""The numbers of a step against the paper's run, counted by hand, and that the table shows them."""

import io

from rich.console import Console
from rich.table import Table

from codea1.config import default_config
from codea1.learn.batch import RowShape, row_shapes
from codea1.training.dry_run import Gradings, StepSizes, batch_table


def shown(table: Table) -> list[str]:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    return [" ".join(line.replace("│", " ").split()) for line in console.file.getvalue().splitlines()]


def test_the_papers_step():
    config = default_config()  # 256 questions, M = N = 8, suites of one solution train, 2 mini-batches
    code = StepSizes.of(config, "code", row_shapes((2048,), 8192, max_rows=16))
    assert code == StepSizes(
        roles=("code",),
        prompts=256,
        samples=2048,
        generated_tokens=2048 * 4096,
        sequences=2048,
        mini_batches=2,
        row_shapes=(RowShape(64, 2048), RowShape(16, 8192)),
        micro_batches=2 * 64,
        trained_tokens=2048 * 8192,
    )
    test = StepSizes.of(config, "test", row_shapes((), 12288, max_rows=48))
    assert (test.prompts, test.samples, test.sequences) == (2048, 16384, 2048)
    assert test.micro_batches == 2 * 22  # 1024 sequences are 21 full micro-batches and a third of one
    assert Gradings.of(config) == Gradings(programs=4096, ground_truths=4096)


def test_one_policy_has_the_samples_of_both_roles_and_a_frozen_one_learns_from_none():
    config = default_config()
    config.method = "self_play"
    both = StepSizes.of(config, "code", row_shapes((), 8192, max_rows=16))
    assert (both.prompts, both.samples, both.sequences) == (256 + 2048, 2048 + 16384, 2048 + 2048)
    assert both.micro_batches == 2 * 128
    config.method, config.frozen = "code_a1", "test"
    frozen = StepSizes.of(config, "test", row_shapes((), 12288, max_rows=48))
    assert (frozen.samples, frozen.sequences, frozen.mini_batches, frozen.micro_batches) == (16384, 0, 0, 0)
    lines = shown(batch_table(config, 600, {"code": both, "test": frozen}))
    assert "samples 18,432 solutions and suites 16,384 suites" in lines
    assert "mini-batches 2 of 2,048 0" in lines


def test_golden_tests_are_one_grading_of_each_solution():
    config = default_config()
    config.method = "golden"
    assert Gradings.of(config) == Gradings(programs=2048, ground_truths=0)


def test_the_table_tells_the_step_and_the_run():
    config = default_config()
    sizes = {name: StepSizes.of(config, name, row_shapes((), 8192, max_rows=16)) for name in ("code", "test")}
    lines = shown(batch_table(config, 600, sizes))
    assert "samples 2,048 solutions 16,384 suites" in lines
    assert "mini-batches 2 of 1,024 2 of 1,024" in lines
    assert "over 111 steps (55.50 epochs): optimizer steps 222 222" in lines  # two whole batches in 600 questions
