"""Benchmarks of programs and of tests, their judges, and the statistics of what was measured."""
