"""Learning: samples into batches, advantages and losses, and the update."""
