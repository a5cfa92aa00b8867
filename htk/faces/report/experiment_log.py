"""The summary's figures and the report, in the experiment tracker that a team has."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from htk.base.errors import UsageError
from htk.faces.report.content import gather_report
from htk.faces.report.write import write_report
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import Verdict, reach_verdict

_PREFIX = "htk/"


def list_figures(summary: Verdict) -> dict[str, float]:
    """Return the summary as numbers by name: times of a step in ms, shares of it in percent.

    What was not recorded has no entry.
    """
    values: dict[str, float | None] = {
        "step_ms": _convert_to_ms(summary.step_ns),
        "step_spread_ms": _convert_to_ms(summary.step_spread_ns),
        "host_step_ms": _convert_to_ms(summary.cpu_step_ns),
        "recorded_ms": _convert_to_ms(summary.window_ns) if not summary.records else None,
        "steps": summary.steps,
        "ranks": len(summary.ranks),
    }
    values |= {f"time_pct/{_name_metric(share.name)}": share.pct for share in summary.shares}
    values |= {f"cause_pct/{_name_metric(cause.finding)}": cause.pct for cause in summary.causes}
    values |= {
        f"cause_gain_ms/{_name_metric(c.finding)}": _convert_to_ms(c.gain_ns)
        for c in summary.causes
    }
    return {_PREFIX + name: float(value) for name, value in values.items() if value is not None}


def log_to(trace: Trace, tracker: Any, *, step: int | None, report: bool) -> dict[str, float]:
    """Log the figures, and the HTML report, to a W&B run, MLflow or a TensorBoard writer.

    Returns the figures.
    """
    log = _choose_logger(tracker)
    summary = reach_verdict(trace)
    values = list_figures(summary)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "htk_report.html")
        if report:
            content = gather_report(trace, title="", command="trace.log_to(…)", whatif=False)
            write_report(content, "html", str(path))
        log(tracker, values, summary, path if report else None, step)
    return values


def _choose_logger(tracker: Any) -> Callable[..., None]:
    """Return how a tracker is written to; known by what it offers."""
    for method, log in (
        ("log_metrics", _log_to_mlflow),
        ("add_scalar", _log_to_tensorboard),
        ("log_artifact", _log_to_wandb),
    ):
        if callable(getattr(tracker, method, None)):
            return log
    raise UsageError(
        f"{type(tracker).__name__} is not a tracker that is known; give a W&B run (wandb.init()), "
        "the mlflow module, or a SummaryWriter of TensorBoard"
    )


def _log_to_wandb(
    run: Any, values: dict[str, float], _summary: Verdict, report: Path | None, step: int | None
) -> None:
    import wandb

    media = {} if report is None else {"htk/report": wandb.Html(report.read_text("utf-8"))}
    run.log(values | media, step=step)


def _log_to_mlflow(
    mlflow: Any, values: dict[str, float], _summary: Verdict, report: Path | None, step: int | None
) -> None:
    mlflow.log_metrics(values, step=step)
    if report is not None:
        mlflow.log_artifact(str(report))


def _log_to_tensorboard(
    writer: Any, values: dict[str, float], summary: Verdict, _report: Path | None, step: int | None
) -> None:
    """TensorBoard shows no HTML: the summary's sentences go there as text."""
    for name, value in values.items():
        writer.add_scalar(name, value, step)
    lines = [summary.headline, *(f"- **{c.finding}**: {c.evidence}" for c in summary.causes)]
    writer.add_text("htk/summary", "\n\n".join(lines), step)
    writer.flush()


def _convert_to_ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6


def _name_metric(words: str) -> str:
    return re.sub(r"\W+", "_", words).strip("_")
