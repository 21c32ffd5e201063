"""`codea1.train` with answers that mean something, and a lease that a killed run holds for two seconds."""

from bench.micro_run import scripted_answer
from codea1 import train
from codea1.data.tokenizer import ChatTokenizer
from codea1.runs import lock
from codea1.runtime import command

if __name__ == "__main__":
    lock.RENEW_SECONDS, lock.EXPIRY_SECONDS = 0.5, 2.0
    ChatTokenizer.decode = scripted_answer
    command.run(train.main)
