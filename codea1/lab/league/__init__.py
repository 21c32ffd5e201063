"""Saved players against each other: who beats whom, and ratings that explain it."""
