"""`scripted.py MODULE FLAGS`: a program whose players' answers mean something."""

import importlib
import sys

from bench.micro_run import scripted_answer
from codea1.data.tokenizer import ChatTokenizer
from codea1.runtime import command

if __name__ == "__main__":
    ChatTokenizer.decode = scripted_answer
    command.run(importlib.import_module(sys.argv.pop(1)).main)
