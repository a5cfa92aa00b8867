"""Changes and values of a history in words, for all faces."""

from htk.base.core.humanize import format_duration
from htk.verdicts.history.changes import Change


def change_in_words(change: Change) -> str:
    """Return a change in words."""
    series = change.series
    first = change.series.runs[change.first]
    metric = series.metric
    between = ""
    if change.earliest < change.latest:
        names = [series.runs[k].run[:8] for k in (change.earliest, change.latest)]
        between = f", between {names[0]} and {names[1]}"
    commit = f", commit {first.tags['commit']}" if "commit" in first.tags else ""
    return (
        f"{metric.replace('_', ' ')} {metric_value(metric, change.before)} → "
        f"{metric_value(metric, change.after)} ({describe_share(change)}) since {first.run[:8]} "
        f"({first.when[:16]}{commit}){between}; confidence {describe_confidence(change)}  "
        f"[{series.name}]"
    )


def metric_value(metric: str, value: float) -> str:
    """Return a value of a metric as people read it."""
    if metric == "mfu":
        return f"{value:.1f} %"
    return f"{value:.3f}x" if metric == "slowdown" else format_duration(value)


def describe_confidence(change: Change) -> str:
    """Return how sure a change is, never wholly."""
    return f"{min(100 * change.confidence, 99.9):.1f} %"


def describe_share(change: Change) -> str:
    """By how much, of what it was before."""
    if change.change_pct is None:
        return "from nothing"
    return f"{change.change_pct:+.1f} %".replace("-", "−")
