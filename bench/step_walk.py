"""How far a step's way is: files and functions of codea1 that one step enters.

  python -m bench.step_walk --config=CONFIG [FLAGS OF codea1.train]

Runs `codea1.train` in this process, with `sys.setprofile` on all threads, and counts what is entered from the first
batch of questions to the moment the players begin to learn, and to the moment the step is whole. What a sandbox's child
runs is not counted, nor what libraries do. The first step that the run makes is looked at.
"""

import collections
import os
import sys
import threading
from types import CodeType, FrameType

import codea1
from codea1 import train
from codea1.runtime import command

ROOT = os.path.dirname(codea1.__file__) + os.sep
# The functions with which a step begins, with which it begins to learn, and with which it ends.
MOMENTS = {
    ("feed.py", "QuestionFeed.batch"): "rewards",
    ("player.py", "Player.learn"): "learning",
    ("trainer.py", "Trainer._finish_step"): "",
}


class Walk:
    """Counts while `part` is a part of the step."""

    def __init__(self) -> None:
        self.part: str | None = None  # of the step; None before it; "" after it
        self.entered: dict[str, set[CodeType]] = collections.defaultdict(set)

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or self.part == "" or not frame.f_code.co_filename.startswith(ROOT):
            return
        code = frame.f_code
        moment = MOMENTS.get((os.path.basename(code.co_filename), code.co_qualname))
        if moment is not None and (self.part is not None or moment == "rewards"):
            self.part = moment
        if self.part:
            self.entered[self.part].add(code)

    def show(self) -> None:
        so_far: set[CodeType] = set()
        for part, codes in self.entered.items():
            so_far |= codes
            files = {code.co_filename for code in so_far}
            functions = {code for code in so_far if not code.co_name.startswith("<")}
            print(f"to the end of {part}: {len(files)} files, {len(functions)} functions")


if __name__ == "__main__":
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        command.run(train.main)
    finally:
        sys.setprofile(None)
        walk.show()
