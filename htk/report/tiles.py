"""The numbers at the head of a report."""

from html import escape

from htk.core.humanize import format_duration
from htk.report.content import Report


def tiles(report: Report) -> str:
    """Step, compute, exposed communication, idle, MFU, and on what."""
    rendered = [_tile(*facts) for facts in _facts(report)]
    return f'<div class="tiles">{"".join(rendered)}</div>'


def _tile(value: str, name: str, more: str, kind: str) -> str:
    return (
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(more)}</small></div>"
    )


def _facts(report: Report) -> list[tuple[str, str, str, str]]:
    verdict = report.verdict
    facts = []
    if verdict.step_ns is not None:
        spread = f"± {format_duration((verdict.step_spread_ns or 0) / 2)}, {verdict.steps} recorded"
        alone = "the only one recorded"
        facts.append(
            (format_duration(verdict.step_ns), "step", spread if verdict.steps > 1 else alone, "")
        )
    else:
        facts.append((format_duration(verdict.window_ns), "recorded", "no steps", ""))
    for name, words, kind in (
        ("compute", ("compute",), "compute"),
        ("exposed communication", ("exposed comm", "exposed wait", "exposed transfer"), "comm"),
        ("idle", ("idle", "unrecorded", "between"), "idle"),
    ):
        shares = [s for s in verdict.shares if s.name.startswith(words)]
        if shares:
            total = sum(s.pct for s in shares)
            part = format_duration(total / 100 * verdict.total_ns)
            of = f"{part} of a step" if verdict.step_ns else "of the recording"
            facts.append((f"{total:.1f} %", name, of, kind))
    mfu = _mfu(report)
    if mfu is not None:
        facts.append((f"{mfu:.1f} %", "MFU", "of the GPUs' peak, mean", ""))
    ranks, size = len(verdict.ranks), verdict.coverage.get("world_size")
    of = f"of {size}" if size and size != ranks else "all ranks" if size else "known"
    facts.append((str(ranks), "rank" if ranks == 1 else "ranks", report.devices or of, ""))
    linked = verdict.coverage.get("gpu_activities_linked_pct")
    if linked is not None:
        facts.append((f"{linked:.3g} %", "linked", "of GPU time, to its launch", ""))
    return facts


def _mfu(report: Report) -> float | None:
    for section in report.sections:
        for answered in section.answers:
            if answered.name == "flops" and answered.result is not None:
                recorded = [r["mfu_pct"] for r in answered.result.to_pylist() if r.get("mfu_pct")]
                return sum(recorded) / len(recorded) if recorded else None
    return None
