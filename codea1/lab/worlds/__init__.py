"""Worlds of procedural functions: their components and mistakes, and the questions made of them."""
