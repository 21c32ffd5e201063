"""What a run writes and reads back: its folder, checkpoints, metrics, samples, evaluations, figures and tables."""
