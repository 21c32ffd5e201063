"""TOPVAR."""

from hypothesis import given
from hypothesis import strategies as st

from codea1.game.selection import top_variance


def test_the_most_varied_solutions_are_chosen():
    rewards = [[0.5, 0.5], [0.0, 1.0], [0.4, 0.6], [0.1, 0.8]]
    assert top_variance(rewards, 1) == [1]
    assert top_variance(rewards, 2) == [1, 3]


def test_ties_go_to_the_lowest_index():
    assert top_variance([[0.3, 0.3], [0.1, 0.1], [0.2, 0.2]], 1) == [0]
    assert top_variance([[0.5, 0.5], [0.7, 0.1, 0.2], [0.2, 0.7, 0.1]], 1) == [1]


def test_nothing_is_left_out_when_all_may_train():
    assert top_variance([[0.5], [0.5]], 2) == [0, 1]
    assert top_variance([[], [None]], 8) == [0, 1]


def test_the_standard_deviation_is_the_population_one():
    # Unbiased, the pair (std 0.57) would beat the quadruple (std 0.55).
    assert top_variance([[0.0, 0.8], [0.0, 0.94, 0.94, 0.0]], 1) == [1]


def test_masked_rewards_do_not_count():
    assert top_variance([[None, None], [0.0, None, 1.0], [0.0, 0.4]], 1) == [1]
    assert top_variance([[None], [None, 0.5], [0.2, 0.2]], 1) == [1]
    assert top_variance([[None], [None], []], 1) == []


REWARDS = st.lists(st.none() | st.floats(0, 1), max_size=8)


@given(st.lists(REWARDS, min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_the_order_of_suites_does_not_matter(rewards, random):
    shuffled = [random.sample(suites, len(suites)) for suites in rewards]
    assert top_variance(rewards, 1) == top_variance(shuffled, 1)
