"""Benchmarks of programs and of tests, their judges, and the policies that answer them."""
