"""Algorithm 1: a step of the game, what a run is made of, validation and resumption."""
