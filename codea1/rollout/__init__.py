"""Generation: requests in, samples out."""
