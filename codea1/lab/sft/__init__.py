"""Supervised training: the corpora, and what `codea1.sft` does."""
