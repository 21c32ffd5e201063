"""What a run writes and reads back: its folder and lock, checkpoints with the Mistake Book, metrics and samples."""
