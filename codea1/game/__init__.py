"""The game of the paper: questions, prompts, tests, rewards, the Mistake Book. Plain Python and numpy."""
