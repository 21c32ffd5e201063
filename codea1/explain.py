"""Shows one question's story in a run: every step that sampled it, each verdict, reward and book change; or duels.

  python -m codea1.explain runs/tiny/code_a1 --html=story.html
  python -m codea1.explain runs/tiny/code_a1 --question=list/ne3/gap4/any --step=50

  python -m codea1.explain runs/tiny/code_a1 --duels
  python -m codea1.explain runs/tiny/code_a1 --duels --output=duel.svg

Without --question it is the one in which the Test LLM learned most to expose programs: the adversarial part of its
suites' rewards rose most from the first step that asked it to the last. The page is one file without links.

A duel is a wrong program that tests pay in full, the right assert by which the Test LLM breaks it, and a right program
of a later step, or else of the same one. The sandbox runs all of it again, with the questions that the run's config
names. The best is printed or drawn. Nothing in the run's folder changes.
"""

from absl import flags

from codea1.lab.runs.story import explain
from codea1.runtime import command
from codea1.runtime.errors import BadInput

QUESTION = flags.DEFINE_string("question", "", "its id; empty for the one in which the tests gained most")
STEP = flags.DEFINE_integer("step", None, "only this training step; all without it")
HTML = flags.DEFINE_string("html", "", "file that gets a page, local or gs://, instead of the terminal")
DUELS = flags.DEFINE_bool("duels", False, "find programs that were paid and wrong, then broken, then right")
OUTPUT = flags.DEFINE_string("output", "", "with --duels, SVG file of a picture of the best, local or gs://")


def main(run: str) -> None:
    if DUELS.value:
        if HTML.value:
            raise BadInput("--html is a page of a story: --duels prints, or draws with --output.")
        from codea1.lab.runs.duels import tell_duels  # imports JAX, once the flags are checked

        tell_duels(run, QUESTION.value, STEP.value, OUTPUT.value)
        return
    if OUTPUT.value:
        raise BadInput("--output draws a duel: give --duels, or --html for a story's page.")
    explain(run, QUESTION.value, STEP.value, HTML.value)


if __name__ == "__main__":
    command.run(main, argument="RUN")
