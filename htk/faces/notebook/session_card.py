"""A session as a notebook shows it: who, how long, and the verdict."""

from html import escape

import numpy as np

from htk.answers.output import html
from htk.answers.output.coverage_text import coverage_lines
from htk.base.columns.arrow import mark_valid, read_numbers
from htk.base.core.humanize import format_bytes, format_duration, format_int_ranges
from htk.base.errors import HtkError
from htk.traces.trace.coverage import describe_coverage
from htk.traces.trace.trace import Trace
from htk.verdicts.overview.summary import Verdict, reach_verdict

MOST_EVENTS = 3_000_000  # of a trace whose verdict is worked out to show it
_MOST_FILES = 200
_QUIET = "opacity:.7"


def render_session_card(trace: Trace) -> str:
    """HTML that stands alone."""
    ranks = trace.tables["ranks"]
    events = int(read_numbers(ranks["events"]).sum())
    verdict = _find_verdict(trace) if events <= MOST_EVENTS else None
    facts = [
        ("ranks", _describe_ranks(trace)),
        *(() if verdict is not None and verdict.served else [("steps", _describe_steps(trace))]),
        ("devices", ", ".join(sorted({d for d in ranks["device_name"].to_pylist() if d})) or "–"),
        ("recorded", _describe_span(trace)),
        ("events", f"{events:,}"),
    ]
    cells = "".join(
        f'<td style="text-align:left;padding:2px 22px 2px 0"><span style="{_QUIET}">{name}</span>'
        f"<br><b>{escape(value)}</b></td>"
        for name, value in facts
    )
    notes = coverage_lines(describe_coverage(trace, ("kernels",)))
    footer = "".join(
        f'<div style="{_QUIET};font-size:12px">{escape(n.strip())}</div>' for n in notes
    )
    return html.wrap_in_card(
        "<b>htk "
        f"trace</b>{_render_verdict(verdict)}<table><tr>{cells}</tr></table>{footer}{_render_files(trace)}"
    )


def _find_verdict(trace: Trace) -> Verdict | None:
    try:
        return reach_verdict(trace)
    except HtkError:
        return None


def _render_verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return f' <span style="{_QUIET}">trace.summary() says where the time goes</span>'
    causes = "".join(
        f"<li>{escape(c.finding)}: {escape(c.evidence)}. <i>{escape(c.advice)}</i></li>"
        for c in verdict.causes
    )
    shares = [(s.name, s.pct) for s in verdict.shares]
    return (
        f" · {escape(verdict.headline).replace(chr(10), '<br>')}{html.share_bar(shares)}"
        f"{f'<ol style=margin-top:4px>{causes}</ol>' if causes else ''}"
    )


def _describe_ranks(trace: Trace) -> str:
    """`0..7 of 8`."""
    logged = trace.tables["job_operations"]["rank"]
    if not trace.ranks and mark_valid(logged).any():
        return format_int_ranges(np.unique(read_numbers(logged)[mark_valid(logged)]).tolist())
    if not trace.ranks:
        return "unknown"
    sizes = [v for v in trace.tables["ranks"]["world_size"].to_pylist() if v]
    return format_int_ranges(trace.ranks) + (f" of {max(sizes)}" if sizes else "")


def _describe_steps(trace: Trace) -> str:
    for name in ("step_windows", "annotations", "job_operations"):
        steps = trace.tables[name]["step"]
        numbered = np.unique(read_numbers(steps)[mark_valid(steps)])
        if len(numbered):
            return format_int_ranges(numbered.tolist())
    return "none"


def _describe_span(trace: Trace) -> str:
    rows = trace.tables["ranks"]
    start = rows["start_ns"]
    end = rows["end_ns"]
    if not mark_valid(start).any() or not mark_valid(end).any():
        return "–"
    low = int(read_numbers(start)[mark_valid(start)].min())
    return format_duration(int(read_numbers(end)[mark_valid(end)].max()) - low)


def _render_files(trace: Trace) -> str:
    rows = []
    for row in trace.tables["ranks"].to_pylist()[:_MOST_FILES]:  # a row for each file
        span = (row["end_ns"] or 0) - (row["start_ns"] or 0)
        cells = (
            "–" if row["rank"] is None else row["rank"],
            str(row["file"]).rsplit("/", 1)[-1],
            row["format"],
            format_bytes(row["file_bytes"]) if row["file_bytes"] else "–",
            row["device_name"] or "–",
            f"{row['events'] or 0:,}",
            format_duration(span) if span else "–",
        )
        rows.append("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in cells) + "</tr>")
    head = "".join(
        f"<th>{h}</th>" for h in ("rank", "file", "format", "size", "device", "events", "recorded")
    )
    many = f"{len(trace.files)} file{'s' * (len(trace.files) != 1)}"
    return (
        f"<details><summary>{many}</summary><table><tr>{head}</tr>{''.join(rows)}</table></details>"
    )
