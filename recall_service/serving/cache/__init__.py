"""Answers that were given before: keys, codec, the tier in this process, Redis, one computation for equal questions."""
