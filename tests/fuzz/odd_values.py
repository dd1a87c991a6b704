"""Values that readers trip over: borders of integer types, floats that are no numbers, texts that are no names."""

import random
from typing import Any

INTEGERS = (
    *(0, 1, -1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 255, 256, 257, 400, 401, 1_000, 10_000, 65_535, 65_536),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64),
    *(-(2**31), -(2**31) - 1, -(2**63), -(2**63) - 1, 10**30, 10**400),
)
FLOATS = (0.0, -0.0, 0.5, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e38, 1e300, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    *("", " ", "0", "-1", "1e5", "007", "true", "null", "None", "nan", "\n", "a\nb", "\r\n", "\0", "a\0b", "\x1b[31m"),
    *("ö", "\u0663", "\u2028", "\ufeff", "\U0001f600", "\ud800", "\udcff", "e\u0301", "\u202etxt"),
    *("..", "../..", "/", "/dev/null", "/proc/self/mem", "~", "a/b", "x" * 64, "x" * 65, "x" * 257, "x" * 5_000),
    *("{code}", "{sid}", "{0.__class__}", "%s%n", "${HOME}", "$(id)", "'; --", "<a_1>", "<a_1><b_2><c_3>", "a:b:c"),
    *("__proto__", "cos\nsystem\n(S'id'\ntR.", "\u0130", "ﬃ", "A" * 128, "é" * 128),
)


def odd_integer(generator: random.Random) -> int:
    """One of the borders, or a small number."""
    return generator.choice(INTEGERS) if generator.random() < 0.7 else generator.randrange(-4, 500)


def odd_text(generator: random.Random) -> str:
    """One of the texts, or a few characters from anywhere."""
    if generator.random() < 0.7:
        return generator.choice(TEXTS)
    return "".join(chr(generator.randrange(1, 0xD800)) for _ in range(generator.randrange(1, 12)))


def odd_value(generator: random.Random, depth: int = 2) -> Any:
    """What JSON can hold: a scalar, or a small list or object of such."""
    kind = generator.randrange(9 if depth else 6)
    if kind < 2:
        return odd_integer(generator)
    if kind < 4:
        return odd_text(generator)
    if kind == 4:
        return generator.choice(FLOATS)
    if kind == 5:
        return generator.choice((None, True, False))
    if kind == 6:
        return [odd_value(generator, depth - 1) for _ in range(generator.randrange(4))]
    if kind == 7:
        return {odd_text(generator): odd_value(generator, depth - 1) for _ in range(generator.randrange(3))}
    return nested(generator.choice((3, 40)))


def nested(depth: int) -> list[Any]:
    """Lists in lists."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value
