"""Evaluation: what a player scores on questions it was never trained on, and how sure that number is."""
