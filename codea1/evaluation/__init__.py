"""What a run measures of itself: held-out questions, warnings, reports, and the statistics behind them."""
