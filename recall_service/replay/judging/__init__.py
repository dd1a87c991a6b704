"""What replayed answers are worth: two lists side by side, sums over many, thresholds, and the knee of a sweep."""
