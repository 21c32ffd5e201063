"""One evaluation on a benchmark: what is asked, who answers, and where it is kept and published."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.progress import Progress

from codea1.config import config_of, default_config
from codea1.evaluation.evaluation_folder import EvaluationFolder
from codea1.evaluation.evaluations import write_evaluation
from codea1.evaluation.held_out import PerQuestion, summary
from codea1.evaluation.sampling import Draw
from codea1.evaluation.tables import evaluation_table
from codea1.game.methods import game_rules
from codea1.game.prompts import DEFAULT, PromptTemplates
from codea1.players.policy import Policy, policy_of_folder, policy_of_run
from codea1.runs.checkpoints import Checkpoints
from codea1.runs.folder import RunFolder
from codea1.runs.manifest import MANIFEST
from codea1.runtime.hosts import Hosts
from codea1.sandbox.host.pool import SandboxPool
from codea1.sandbox.isolation.levels import AUTO
from codea1.storage.checksums import checksum, checksums
from codea1.storage.objects import location, names

_MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt")  # weights, config and tokenizer


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user wants to know; texts are empty where nothing was given."""

    benchmark: str
    file: str
    run: str = ""
    step: str = "last"  # of the run
    model: str = ""
    completions: str = ""
    output: str = ""
    semantics: str = "evalplus"
    draw: Draw = field(default_factory=Draw)
    lengths: tuple[int, int, int] = (0, 0, 0)  # of prompts, of responses, and slots; see `codea1.players.policy`
    best_of: bool = False
    test_model: str = ""
    num_tests: int = 8


class Evaluation:
    """What evaluations of programs and of suites share. Every host makes one and calls the same."""

    def __init__(self, asked: Asked, run: RunFolder | None, hosts: Hosts) -> None:
        """Finds the step of the run and makes --output: all else that can be wrong should be known before.

        Raises BadInput: there is no such step, or --output is another evaluation's or cannot be used.
        """
        self.asked, self.run, self.hosts = asked, run, hosts
        self.console = Console(stderr=True, quiet=not hosts.is_main)
        with hosts.agreed():
            self._rules = game_rules(config_of(run)) if run else None
            checkpoints = Checkpoints.reader(run.checkpoints) if run else None
        self.step: int = hosts.of_main(lambda: checkpoints.named(asked.step)) if checkpoints else 0
        self.home: RunFolder = hosts.of_main(self._make_home)

    @property
    def templates(self) -> PromptTemplates:
        """How programs and suites are asked for: as the run's players learned."""
        return self._rules.templates if self._rules else DEFAULT

    @property
    def sees_solution(self) -> bool:
        """Whether the Test LLM is shown programs: a run's as it learned, that of a folder always."""
        return self._rules is None or bool(self.asked.test_model) or self._rules.method.sees_solution

    def policy(self, role: str, url: str) -> Policy:
        """The model in the folder `url`, or where that is empty the player of the run."""
        self.console.print(f"loading the {role} model")
        if url:
            with self.hosts.agreed():
                return policy_of_folder(role, url, self.asked.lengths)
        return policy_of_run(self.run, str(self.step), role, self.asked.lengths, self.hosts)

    def settings_of_policy(self, url: str, prefix: str = "") -> dict[str, Any]:
        """What the answers of a `policy` depend on, the draw left aside. Reads its weights. Of the main host alone."""
        prompt, response, _ = self.asked.lengths
        return {
            f"{prefix}model": url or self.asked.run,
            f"{prefix}weights": _content_of_model(url) if url else self._content_of_step(),
            "step": self.step,
            "max_prompt_length": prompt,
            "max_response_length": response,
        }

    @contextlib.contextmanager
    def folder(
        self, name: str, settings: Callable[[], Mapping[str, Any]], files: Sequence[str]
    ) -> Iterator[EvaluationFolder | None]:
        """Where the main host keeps what is done, beside the result; None on the others.

        Args:
          settings: gives all that the results depend on besides the benchmark's file; two evaluations whose settings
            differ are not one. The main host alone calls it.
          files: see `EvaluationFolder`.
        """
        with contextlib.ExitStack() as stack:
            folder = None
            with self.hosts.agreed():
                if self.hosts.is_main:
                    path = f"{self.home.evaluations}/{self._file(name)}"
                    file = digest(checksum(location(self.asked.file, "--file")))
                    whole = {"benchmark": self.asked.benchmark, "file": file, **settings()}
                    folder = stack.enter_context(EvaluationFolder(path, whole, files))
            yield folder

    def publish(
        self, name: str, metrics: PerQuestion, question_ids: Sequence[str], left_out: Mapping[str, str]
    ) -> None:
        """Writes and prints metrics, with the questions and the reasons for those that are left out."""
        evaluation = summary(metrics, self.step, name, question_ids) | {"left_out": left_out}
        write_evaluation(self.home, self._file(name), evaluation)
        judged = len(question_ids) - len(left_out)
        title = f"{name}, {judged} of {len(question_ids)} questions, step {self.step}"
        Console().print(evaluation_table(evaluation, title))
        print(f"wrote {self.home.evaluations / self._file(name)}.json")

    @contextlib.contextmanager
    def shown(self, what: str, total: int) -> Iterator[Callable[[], None]]:
        """A progress bar; what it gives is called for each of the total."""
        with Progress(console=self.console, disable=not self.hosts.is_main) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)

    def _make_home(self) -> RunFolder:
        """Where the result goes: --output, or the run itself."""
        asked = self.asked
        if not asked.output:
            return self.run
        evaluated = {"run": asked.run} if asked.run else {"model": asked.model, "completions": asked.completions}
        return RunFolder.open(asked.output, {"evaluated": evaluated})

    def _file(self, name: str) -> str:
        """What an evaluation is called in evaluations/."""
        return f"{name}_step_{self.step:06d}"

    def _content_of_step(self) -> str:
        return digest(checksum(self.run.checkpoints / str(self.step) / MANIFEST))


def sandbox() -> SandboxPool:
    """The sandbox of an evaluation."""
    config = default_config()
    config.sandbox.isolation = AUTO
    return SandboxPool.of_config(config)


def digest(value: Any) -> str:
    """Equal for equal values alone, as far as `repr` tells them apart."""
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _content_of_model(url: str) -> str:
    folder = location(url, "the model folder")
    return digest(sorted(checksums(folder, (name for name in names(folder) if name.endswith(_MODEL_FILES))).items()))
