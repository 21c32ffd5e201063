"""Shows one question's story in a run: every step that sampled it, each verdict, reward and book change.

  python -m codea1.explain runs/tiny/code_a1 --html=story.html
  python -m codea1.explain runs/tiny/code_a1 --question=list/ne3/gap4/any --step=50

Without --question it is the one in which the Test LLM learned most to expose programs: the adversarial part of its
suites' rewards rose most from the first step that asked it to the last. The page is one file without links. Nothing in
the run's folder changes.
"""

from absl import flags

from codea1.lab.runs.story import explain
from codea1.runtime import command

QUESTION = flags.DEFINE_string("question", "", "its id; empty for the one in which the tests gained most")
STEP = flags.DEFINE_integer("step", None, "only this training step; all without it")
HTML = flags.DEFINE_string("html", "", "file that gets a page, local or gs://, in place of the terminal")


def main(run: str) -> None:
    explain(run, QUESTION.value, STEP.value, HTML.value)


if __name__ == "__main__":
    command.run(main, argument="RUN")
