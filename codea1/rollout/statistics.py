"""How well a run's generation went, as numbers of its log."""

from dataclasses import dataclass

from codea1.rollout.request import Sample


@dataclass
class Statistics:
    """Counts since the last time they were taken."""

    samples: int = 0
    truncated: int = 0  # samples that reached their length limit
    empty: int = 0  # samples that stopped at once
    prompts: int = 0  # prefilled
    prefill_rows: int = 0  # including those that filled up a prefill's static size
    tokens: int = 0  # drawn
    slot_steps: int = 0  # decode steps, each for the slots there were

    def see(self, sample: Sample) -> None:
        """Counts a finished sample."""
        self.samples += 1
        self.truncated += sample.finish_reason == "length"
        self.empty += sample.finish_reason == "stop" and len(sample.token_ids) == 1

    def metrics(self) -> dict[str, float]:
        """`slot_use` is the share of slot-steps that drew a token."""
        return {
            "samples": float(self.samples),
            "truncated": float(self.truncated),
            "empty": float(self.empty),
            "prompts": float(self.prompts),
            "prefill_use": self.prompts / max(self.prefill_rows, 1),
            "slot_use": self.tokens / max(self.slot_steps, 1),
        }
