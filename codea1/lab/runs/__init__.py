"""A run read further: its stories, its Mistake Book, its steps again, and whether its files are sound."""
