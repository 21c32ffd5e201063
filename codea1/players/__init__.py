"""A policy that answers and learns, its compiled functions and its critic."""
