"""Code-A1: a Code LLM and a Test LLM that learn from each other by reinforcement learning, in JAX."""
