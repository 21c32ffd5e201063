"""`scripted.py MODULE FLAGS`: a program whose players' answers mean something, and whose lock ends with it, soon."""

import importlib
import inspect
import sys

from bench.micro_run import scripted_answer
from codea1.data.tokenizer import ChatTokenizer
from codea1.runs import lock
from codea1.runtime import command

if __name__ == "__main__":
    lock.RENEW_SECONDS, lock.EXPIRY_SECONDS = 0.5, 2.0  # of the lease on a folder in a bucket
    ChatTokenizer.decode = scripted_answer
    main = importlib.import_module(sys.argv.pop(1)).main
    command.run(main, argument="RUN" if inspect.signature(main).parameters else "")
