"""How numbers are written for people: times, shares, rates, scores."""


def milliseconds(seconds: float) -> str:
    """A time with three digits, in ms or s."""
    return f"{number(seconds)} s" if seconds >= 0.9995 else f"{number(seconds * 1000)} ms"


def share(value: float) -> str:
    """A share in per cent. Only all of it is 100 %, and only nothing 0 %."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return "< 0.01 %"
    if 99.99 < percent < 100:
        return "> 99.99 %"
    return f"{percent:.4g} %"


def number(value: float) -> str:
    """Three digits, or as many as stand before the point."""
    text = f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"
    return text.replace("e-0", "e-")


def shortened(name: str, longest: int = 16) -> str:
    """The beginning of a long name, as of a digest."""
    return name if len(name) <= longest else f"{name[: longest - 4]}…"
