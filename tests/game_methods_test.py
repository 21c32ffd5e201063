"""What makes each method, by hand; `methods_test.py` plays them."""

import pytest

from codea1.game.methods import METHODS, CodeRewardSource, Method

GENERATED, GOLDEN, STATIC = CodeRewardSource


@pytest.mark.parametrize(
    ("name", "policies", "code_reward", "sees_solution", "mistake_book"),
    [
        ("code_a1", ("code", "test"), GENERATED, True, True),
        ("golden", ("code",), GOLDEN, False, False),
        ("static_tests", ("code",), STATIC, False, False),
        ("black_box", ("code", "test"), GENERATED, False, True),
        ("self_play", ("code",), GENERATED, False, True),
        ("self_play_white_box", ("code",), GENERATED, True, True),
    ],
)
def test_methods(name, policies, code_reward, sees_solution, mistake_book):
    method = METHODS[name]
    assert method.policies == policies
    assert method.code_reward is code_reward
    assert (method.sees_solution, method.mistake_book) == (sees_solution, mistake_book)


def test_a_policy_may_play_several_roles():
    assert [METHODS["code_a1"].roles_of(policy) for policy in ("code", "test")] == [("code",), ("test",)]
    assert [METHODS["golden"].roles_of(policy) for policy in ("code", "test")] == [("code",), ()]
    assert METHODS["self_play"].roles_of("".join(["co", "de"])) == ("code", "test")


def test_a_method_sees_nothing_and_keeps_no_book_unless_it_says_so():
    assert Method({}, GOLDEN) == Method({}, GOLDEN, sees_solution=False, mistake_book=False)
