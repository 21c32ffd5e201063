"""Questions: the procedural dataset, its SFT corpus and tokenizer, and the loader and the feed of any dataset."""
