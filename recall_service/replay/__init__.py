"""Replays recorded questions against a recall service, on their own timing or another, and writes what came of each."""
