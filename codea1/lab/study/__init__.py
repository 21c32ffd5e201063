"""Declared comparisons of recipes over worlds and seeds: what runs, what is kept of each run, and what it shows."""
