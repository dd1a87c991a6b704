"""Slow, obvious references that share no code with what they check."""
