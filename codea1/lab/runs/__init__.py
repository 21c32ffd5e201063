"""A run read further: its stories, suites and Mistake Book, its steps again, and whether its files are sound."""
