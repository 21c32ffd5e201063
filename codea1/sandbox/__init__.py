"""Untrusted Python in, verdicts out."""
