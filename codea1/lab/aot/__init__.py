"""Compiling a run's functions ahead of time for chips that are not there, and what follows from it."""
