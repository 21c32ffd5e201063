"""Learning: samples into batches, advantages and losses, and the update. Axes have the letters of `codea1.models`."""
