"""EvalPlus: `evalplus.eval.untrusted_check`, of the installed package."""

from evalplus.eval import PASS, untrusted_check


def paid(question: dict, program: str) -> bool | None:
    if question["kind"] != "function":
        return None
    inputs = [test["arguments"] for test in question["tests"]]
    expected = [test["expected"] for test in question["tests"]]
    times = [0.1] * len(inputs)
    return untrusted_check("mbpp", program, inputs, question["entry_point"], expected, 0, times, True)[0] == PASS
