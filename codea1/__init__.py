"""Code-A1: a Code LLM and a Test LLM that learn from each other by reinforcement learning, in JAX."""

import os

# Only the tokenizers of transformers are used here: its advice to install PyTorch would mislead.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
