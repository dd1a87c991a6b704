"""What the flags of several benchmarks hold."""

import argparse


def numbers(text: str) -> tuple[int, ...]:
    """Positive integers by comma, for argparse."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r}; give positive integers by comma, as in 100,400")
    return tuple(map(int, parts))
