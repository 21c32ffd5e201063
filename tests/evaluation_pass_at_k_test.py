from itertools import combinations

import pytest

from codea1.evaluation.statistics import pass_at_k


@pytest.mark.parametrize("n", range(1, 8))
def test_equals_counting_every_draw(n: int):
    for c in range(n + 1):
        for k in range(1, n + 1):
            draws = list(combinations(range(n), k))
            hits = sum(any(solution < c for solution in draw) for draw in draws)
            assert pass_at_k(n, c, k) == hits / len(draws)


def test_pass_at_1_is_the_share_of_right_solutions():
    assert pass_at_k(32, 7, 1) == 7 / 32


def test_large_counts_stay_exact():
    assert pass_at_k(2000, 1, 1000) == 0.5


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int):
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c, k)
