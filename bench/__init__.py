"""Speed measurements, run by hand on a quiet machine."""
