"""What came of running one test on one program."""

from enum import StrEnum


class Verdict(StrEnum):
    """The outcome of one test on one program; the value is what files and metrics show."""

    PASS = "pass"
    FAIL = "fail"  # the call returned, and not the expected value
    ERROR = "error"  # the call raised, or the process died in it
    TIMEOUT = "timeout"
    INVALID = "invalid"  # nothing equals the expected value (a NaN), or the ground truth fails a golden or old test
    NOT_RUN = "not_run"  # the program had spent the time of all tests that ran with this one
    INFRA = "infra"  # the sandbox failed: says nothing about the program or the test
