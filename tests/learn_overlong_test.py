"""What too long a response costs."""

import pytest

from codea1.learn.advantages import overlong_penalty


@pytest.mark.parametrize(
    ("length", "penalty"), [(0, 0.0), (40, 0.0), (80, 0.0), (81, 0.05), (90, 0.5), (100, 1.0), (120, 1.0)]
)
def test_hand_computed(length, penalty):
    assert overlong_penalty(length, max_length=100, buffer=20) == pytest.approx(penalty)


def test_without_a_buffer_nothing_is_taken():
    assert overlong_penalty(100, max_length=100, buffer=0) == 0.0
