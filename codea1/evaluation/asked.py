"""What the user of an evaluation asks for; without JAX, so that a mistake in it is reported at once."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SamplingParams:
    """How answers are sampled."""

    samples: int = 32  # programs per question
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int = 0

    def options(self, purpose: str) -> dict[str, Any]:
        """Returns the arguments of `Policy.generate` besides the requests."""
        return {"seed": self.seed, "purpose": purpose, "temperature": self.temperature, "top_p": self.top_p}


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
    sampling: SamplingParams = field(default_factory=SamplingParams)
    lengths: tuple[int, int, int] = (0, 0, 0)  # of prompts, of responses, and slots; see `codea1.players.policy`
    best_of: bool = False
    test_model: str = ""
    num_tests: int = 8
    in_rounds: bool = True  # suites: a test a round, as the benchmarks ask, not all asserts at once, as the game does
