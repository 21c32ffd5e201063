"""What the tests of a question call: a function, a method of a new object, or a whole program by what it prints.

This module uses the standard library only: it runs inside the sandbox too.
"""

import re

STDOUT = "stdout"  # stdout(text): what the program prints that gets `text` as its standard input
LINKED, TREE, MANY_LINKED, MANY_TREES = "linked", "tree", "linked, many", "tree, many"  # kinds of node; "" is none

_METHOD = re.compile(r"([A-Za-z_]\w*)\(\)\.([A-Za-z_]\w*)")


def class_and_method(entry_point: str) -> tuple[str, str] | None:
    """Returns ("Solution", "twoSum") of an entry point such as `Solution().twoSum`; None for any other."""
    found = _METHOD.fullmatch(entry_point)
    return found and (found[1], found[2])


def tidied(printed: str) -> str:
    """Returns what a program prints without what judges ignore: spaces at the ends of lines, empty lines at the end."""
    return "\n".join(line.rstrip() for line in printed.split("\n")).rstrip("\n")
