"""The numbers at the head of a report."""

from html import escape

from htk.analyses.ops.flops import mean_mfu
from htk.answers.output.result import Result
from htk.base.core.humanize import format_duration
from htk.faces.report.content import Report


def render_tiles(report: Report) -> str:
    """Return the tiles: step, compute, exposed communication, idle, MFU, ranks and devices."""
    rendered = [_render_tile(*facts) for facts in _list_tile_facts(report)]
    return f'<div class="tiles">{"".join(rendered)}</div>'


def _render_tile(value: str, name: str, more: str, kind: str) -> str:
    return (
        f'<div class="tile {kind}"><b>{escape(value)}</b><span>{escape(name)}</span>'
        f"<small>{escape(more)}</small></div>"
    )


def _list_tile_facts(report: Report) -> list[tuple[str, str, str, str]]:
    verdict = report.verdict
    if verdict.records:
        return _of_job(report)
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
    mfu = _find_mfu(report)
    if mfu is not None:
        facts.append((f"{mfu:.1f} %", "MFU", "of the GPUs' peak, mean", ""))
    ranks = len(verdict.ranks)
    size = verdict.coverage.get("world_size")
    of = f"of {size}" if size and size != ranks else "all ranks" if size else "known"
    facts.append((str(ranks), "rank" if ranks == 1 else "ranks", report.devices or of, ""))
    linked = verdict.coverage.get("gpu_activities_linked_pct")
    if linked is not None:
        facts.append((f"{linked:.3g} %", "linked", "of GPU time, to its launch", ""))
    return facts


def _of_job(report: Report) -> list[tuple[str, str, str, str]]:
    """Return what stragglers cost a job that logged its operations; nothing for other records."""
    result = _find_result(report, "straggler_slowdown")
    if result is None:
        return []
    job = result.table.slice(0, 1).to_pylist()[0]
    facts = result.coverage
    recorded = format_duration(int(job["recorded_ms"] * 1e6))
    excess = format_duration(int(job["excess_ms"] * 1e6))
    workers = f"{facts['dp_size']} × {facts['pp_size']}"
    return [
        (f"{job['slowdown']:.2f}x", "slowdown", "over a job without stragglers", ""),
        (recorded, "step", f"{excess} of it due to stragglers", ""),
        (f"{job['excess_gpu_hours']:.3g}", "GPU hours lost", "over the recorded steps", ""),
        (workers, "workers", "data-parallel ranks × stages", ""),
        (f"{facts['steps']:,}", "steps", f"{facts['steps_left_out']:,} left out", ""),
    ]


def _find_mfu(report: Report) -> float | None:
    result = _find_result(report, "flops")
    if result is None:
        return None
    return mean_mfu(result.table)


def _find_result(report: Report, name: str) -> Result | None:
    """Return an answer of the report; None where there is none."""
    answers = (answered for section in report.sections for answered in section.answers)
    return next((each.result for each in answers if each.name == name), None)
