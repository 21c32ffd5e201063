"""Questions: where they come from, the loader, the tokenizer, and the feed of a run."""
