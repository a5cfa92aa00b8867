"""The strip of marks that ends the first page: what the numbers of a recording rest on."""

from typing import Any

from dash import html

from htk.base.core.humanize import shorten_text
from htk.base.mappings import Fields
from htk.dashboard.components import draw_section
from htk.dashboard.page import Visit
from htk.verdicts.overview.doctor import check_recording

_MARKS = {"ok": "✓", "note": "i", "warning": "!", "missing": "–"}


def draw_footing(visit: Visit) -> Any:
    """Return what the numbers rest on, in a strip of marks."""
    rows = visit.kept("doctor", lambda: check_recording(visit.trace)).to_pylist()
    marks = [
        html.Span(
            [html.B(_MARKS[r["state"]]), f" {r['item']}: {shorten_text(r['finding'], 90)}"],
            className=f"mark {r['state']}",
            title=r["finding"] + (f" — {r['advice']}" if r["advice"] else ""),
        )
        for r in rows
        if _is_telling(r)
    ]
    lost = [r["item"].replace("_", " ") for r in rows if r["section"] == "missing"]
    if lost:
        text = f"– not recorded: {', '.join(lost[:6])}" + (", …" if len(lost) > 6 else "")
        marks.append(
            html.Span(text, className="mark missing", title="each page says how to record it")
        )
    return draw_section("What the numbers rest on", html.Div(marks, className="trust"))


def _is_telling(row: Fields) -> bool:
    if row["section"] in ("links", "clocks", "damage"):
        return not row["item"].startswith("operator by") and row["item"] != "first events"
    if row["section"] == "recorded":
        return bool(row["item"] == "profiler options")
    return bool(row["section"] == "files" and (row["item"] == "ranks" or row["state"] != "ok"))
