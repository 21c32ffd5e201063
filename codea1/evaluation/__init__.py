"""What a run measures of itself: held-out questions, warnings, and the statistics behind them."""
