"""Sieges of graders: wrong programs that try to be paid, honest ones, and what a grader says of them."""
