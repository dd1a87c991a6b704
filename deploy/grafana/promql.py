"""The few shapes that the dashboard's expressions have. Dashboard variables: $scene, $instance, $__rate_interval."""

INSTANCE = 'instance=~"$instance"'
QUESTION = f'scene=~"$scene",{INSTANCE}'


def rate(counter: str, *by: str, where: str = INSTANCE) -> str:
    """Events a second, summed over every label but those in `by`."""
    return f"sum{_by(by)} (rate({counter}{{{where}}}[$__rate_interval]))"


def share(counter: str, *by: str, of: str, where: str) -> str:
    """What part of the events that match `of` matches `where`, from 0 to 1."""
    return f"{rate(counter, *by, where=f'{INSTANCE},{where}')} / {rate(counter, *by, where=f'{INSTANCE},{of}')}"


def mean(histogram: str, *by: str) -> str:
    """Mean of what was observed."""
    return f"{rate(f'{histogram}_sum', *by)} / {rate(f'{histogram}_count', *by)}"


def quantile(level: float, histogram: str, *by: str, where: str = INSTANCE) -> str:
    """The histogram's quantile, as fine as its buckets are. level: from 0 to 1."""
    return f"histogram_quantile({level}, {rate(f'{histogram}_bucket', 'le', *by, where=where)})"


def total(gauge: str, *by: str) -> str:
    """Sum of a gauge over every label but those in `by`."""
    return f"sum{_by(by)} ({gauge}{{{INSTANCE}}})"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""


def fill_in(expr: str, rate_seconds: float) -> str:
    """`expr` as Grafana would send it with every scene and instance chosen."""
    variables = {"$scene": ".*", "$instance": ".*", "$__rate_interval": f"{rate_seconds:g}s"}
    for name, value in variables.items():
        expr = expr.replace(name, value)
    return expr
