"""A report as one HTML file: no request leaves it, and it prints."""

from base64 import b64encode
from html import escape

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.figure_colours import classes_of, dark_of_light
from htk.answers.output.figures import draw_figure
from htk.answers.output.html import embed_json, read_asset, render_table
from htk.answers.output.plotting_library import packed_library
from htk.answers.output.result import Result
from htk.answers.output.tokens import FONT, MONO, css_classes, css_variables
from htk.base.core.extras import require_extra
from htk.base.core.humanize import command_name, format_bytes, format_duration, make_sentence
from htk.faces.report.content import Answered, Report, Section
from htk.faces.report.lanes import UNRECORDED
from htk.faces.report.tiles import render_tiles
from htk.whatif.label import BATCHES, SHARDINGS
from htk.whatif.text import in_words

_PAGE_ROWS = 8
_GAIN_OF_FULL_COLOUR = 40.0  # percent


def render_report_page(report: Report) -> str:
    """Return the whole file."""
    parts = [
        _render_head(report),
        _render_overview(report),
        _render_timeline(report),
        _render_whatifs(report),
        *(_render_section(section) for section in report.sections),
        _render_coverage(report),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(report.title)} · htk</title>"
        f"<style>{_render_colours()}{read_asset('table.css')}"
        f"{read_asset('report.css', 'htk.faces.report')}</style>"
        "</head><body>"
        f"{_render_menu(report)}<main>{''.join(parts)}</main>"
        f"{_pack_data(report)}"
        f"<script>{read_asset('table.js')}{read_asset('report.js', 'htk.faces.report')}</script>"
        "</body></html>"
    )


def _render_colours() -> str:
    """Return the colours and type that all faces share, light and dark."""
    light = css_variables(dark=False)
    dark = css_variables(dark=True)
    return (
        f":root {{ --font: {FONT}; --mono: {MONO}; {light} }}"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{css_classes()}"
    )


def _render_menu(report: Report) -> str:
    entries = [("overview", "Overview")]
    entries += [("timeline", "Timeline")] if report.lanes else []
    entries += [("whatif", "What if")] if _render_whatifs(report) else []
    entries += [(s.id, s.title) for s in report.sections if _list_answers(s)]
    entries += [("coverage", "Coverage")]
    links = "".join(f'<a href="#{key}">{escape(name)}</a>' for key, name in entries)
    return f'<nav aria-label="Sections"><b>htk</b>{links}</nav>'


def _render_head(report: Report) -> str:
    return (
        f'<header id="overview"><h1>{escape(report.title)}</h1>'
        f'<p class="headline">{_break_lines(report.verdict.headline)}</p>'
        f"{render_tiles(report)}</header>"
    )


def _break_lines(text: str) -> str:
    return "<br>".join(map(escape, text.split("\n")))


def _render_overview(report: Report) -> str:
    verdict = report.verdict
    total_ns = verdict.total_ns
    if verdict.records:
        return ""
    if not verdict.visible_shares:
        return '<section class="card"><p>No GPU work was recorded.</p></section>'
    bars = []
    legend = []
    kinds = classes_of([share.name for share in verdict.visible_shares])
    for share, kind in zip(verdict.visible_shares, kinds, strict=True):
        label = f"{share.name}: {share.pct:.1f} %, {format_duration(share.pct / 100 * total_ns)}"
        bars.append(
            f'<span class="{kind}" style="flex:{share.pct:.3f}" title="{escape(label)}"></span>'
        )
        legend.append(
            f'<tr><td><i class="{kind}"></i></td><td>{escape(share.name)}</td>'
            f"<td>{share.pct:.1f} %</td><td>{format_duration(share.pct / 100 * total_ns)}</td></tr>"
        )
    return (
        f'<section class="card"><h2>Where the time goes</h2>'
        f'<p class="doc">{verdict.gpu_note} Of {verdict.whole} ({format_duration(total_ns)}), '
        "mean over ranks.</p>"
        f'<div class="stack" role="img" aria-label="Shares of the time">{"".join(bars)}</div>'
        f'<div class="split"><table class="legend">{"".join(legend)}</table>'
        f"<div>{_render_causes(report)}</div></div></section>"
    )


def _render_causes(report: Report) -> str:
    verdict = report.verdict
    cards = []
    for cause in verdict.causes:
        cost = cause.cost_in_words(verdict.total_ns)
        gain = f"<b>{escape(cost)}</b>" if cost else ""
        shared = f"<p>{escape(make_sentence(cause.overlaps))}</p>" if cause.overlaps else ""
        cards.append(
            f"<li><h3>{escape(make_sentence(cause.finding).rstrip('.'))}{gain}</h3>"
            f"<p>{escape(make_sentence(cause.evidence))}</p>{shared}"
            f"<p class=advice>To try: {escape(cause.advice)}.</p></li>"
        )
    if not cards:
        return ""
    note = (
        f'<p class="doc">What {verdict.unit} gains without each cause, by replay, with its 90 % '
        "interval; where nothing can be replayed the recorded time that shows it.</p>"
    )
    return f'<h2>What to change first</h2>{note}<ol class="causes">{"".join(cards)}</ol>'


def _render_timeline(report: Report) -> str:
    lanes = report.lanes
    if lanes is None:
        return ""
    more = f" {lanes.left_out} further streams are not drawn." if lanes.left_out else ""
    more += " Hatched: not recorded." if (lanes.name_codes == UNRECORDED).any() else ""
    keys = "".join(
        f'<span><i style="background:var(--{kind})"></i>{word}</span>'
        for kind, word in (("compute", "compute"), ("comm", "communication"), ("memory", "copies"))
    )
    return (
        f'<section class="card" id="timeline"><h2>What ran when</h2><p class="doc">'
        f"{escape(lanes.title)} ({format_duration(lanes.length_ns)}), "
        "each stream of each rank, on the clock "
        f'of its file.{more}</p><div class="keys">{keys}</div><canvas id="lanes" tabindex="0" '
        'role="img" aria-label="Timeline of a step"></canvas><p id="lane-says" class="says">'
        "Point at it for names.</p></section>"
    )


def _render_whatifs(report: Report) -> str:
    whatif = report.whatif
    if report.verdict.records and whatif.map is None and whatif.bounds is None:
        return ""
    head = '<section class="card" id="whatif"><h2>What if</h2>'
    if whatif.map is None and whatif.bounds is None:
        return f'{head}<p class="doc">No prediction: {escape(whatif.why)}</p></section>'
    intro = ""
    if whatif.bounds is not None:
        intro = (
            f'<p class="doc">The recorded step, replayed, then changed. Replay: '
            f"<b>{escape(str(whatif.bounds.coverage['verdict']))}</b>; it is "
            f"{whatif.bounds.coverage['step_error_pct']:.2f} % off the recorded step. "
            "Predictions are a model’s, with intervals that its errors give.</p>"
        )
    drawn = f"<p>{escape(whatif.why)}</p>" if whatif.why else ""
    if whatif.map is not None:
        drawn = _render_map(whatif.map)
    bounds = _render_bounds(whatif.bounds) if whatif.bounds is not None else ""
    parts = "".join(f"<div>{part}</div>" for part in (drawn, bounds) if part)
    split = f'<div class="split even">{parts}</div>'
    return f"{head}{intro}{split}</section>"


def _render_map(result: Result) -> str:
    """Batch across, strategy down; a cell's colour is what it wins for a sample."""
    rows = result.to_pylist()
    head = "".join(f"<th>{b.replace('x', ' ×')}</th>" for b in BATCHES)
    lines = []
    for k, strategy in enumerate(SHARDINGS):
        cells = [_map_cell(row) for row in rows[k * len(BATCHES) : (k + 1) * len(BATCHES)]]
        lines.append(f"<tr><th>{strategy.replace('_', ' ')}</th>{''.join(cells)}</tr>")
    return (
        '<h3>Batch × sharding</h3><p class="doc">Change of the time for one sample; below it '
        "tokens/s of the job where known, and predicted peak memory.</p>"
        f'<div class="scroll"><table class="map"><thead><tr><td></td>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
        '<p class="keys"><span><i class="won"></i>faster</span><span><i class="lost"></i>slower'
        '</span><span><i class="oom"></i>likely out of memory</span></p>'
    )


def _map_cell(row: dict[str, object]) -> str:
    change = row["time_per_sample_change_pct"]
    verdict = str(row["verdict"])
    if not isinstance(change, float):
        return f'<td class="none" title="{escape(verdict)}">–</td>'
    strength = min(abs(change) / _GAIN_OF_FULL_COLOUR, 1.0) * 75
    kind = "won" if change < 0 else "lost"
    risk = row["p_oom"]
    crowded = isinstance(risk, float) and risk >= 0.5
    below = []
    if isinstance(row["tokens_per_s"], float):
        below.append(f"{row['tokens_per_s']:,.0f}/s")
    if isinstance(row["peak_memory_bytes"], int):
        below.append(format_bytes(row["peak_memory_bytes"]))
    lo = row["step_time_ns_lo90"]
    hi = row["step_time_ns_hi90"]
    notes = [f"{row['whatif']}", verdict]
    if isinstance(lo, int) and isinstance(hi, int):
        notes.insert(1, f"step {format_duration(lo)} to {format_duration(hi)} in nine of ten cases")
    if isinstance(risk, float):
        notes.append(f"out of memory: {100 * risk:.0f} %")
    marks = " oom" if crowded else ""
    return (
        f'<td class="{kind}{marks}" style="--s:{strength:.0f}%" title="{escape("; ".join(notes))}">'
        f"<b>{_format_signed(change)}</b><small>{'<br>'.join(below)}</small></td>"
    )


def _render_bounds(result: Result) -> str:
    lines = []
    for row in result.to_pylist():
        change = row["change_pct"]
        if change is None:
            continue
        wide = min(max(-change, 0.0), 100.0)
        gain = row["measured_step_time_ns"] - row["step_time_ns"]
        lines.append(
            f"<tr><td>{escape(in_words(str(row['whatif'])))}</td>"
            f'<td class="num">{format_duration(gain)}</td>'
            f'<td class="track"><span style="width:{wide:.2f}%"></span></td></tr>'
        )
    note = '<p class="doc">Of a step, each by itself; they overlap.</p>'
    table = f'<table class="bounds">{"".join(lines)}</table>'
    return f"<h3>Best case of each remedy alone</h3>{note}{table}"


def _format_signed(percent: float) -> str:
    return f"{'−' if percent < 0 else '+'}{abs(percent):.1f} %"


def _list_answers(section: Section) -> list[Answered]:
    return [a for a in section.answers if a.result is not None]


def _render_section(section: Section) -> str:
    shown = _list_answers(section)
    if not shown:
        return ""
    cards = "".join(_render_card(a.name, a.result) for a in shown if a.result is not None)
    return (
        f'<section id="{section.id}"><h2 class="band">{escape(section.title)}</h2>{cards}</section>'
    )


def _render_card(name: str, result: Result) -> str:
    plot = f'<div class="plot" data-plot="{name}"></div>' if result.analysis.chart else ""
    command = f"htk {command_name(name)}"
    return (
        f'<article class="card"><h3>{escape(result.analysis.question)}<code>{command}</code></h3>'
        f"{plot}{render_table(result, page=_PAGE_ROWS)}</article>"
    )


def _render_coverage(report: Report) -> str:
    lines = "".join(f"<p>{escape(x.strip())}</p>" for x in coverage_lines(report.verdict.coverage))
    issues = report.verdict.coverage.get("issues") or {}
    lost = "".join(f"<li>{n:,} × {escape(kind)}</li>" for kind, n in issues.items())
    asked = "".join(
        f"<tr><td>{escape(a.name.replace('_', ' '))}</td><td>{escape(a.why)}</td></tr>"
        for a in report.unanswered
    )
    missing = f'<h3>Not answered, and why</h3><table class="plain">{asked}</table>' if asked else ""
    provenance = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>"
        for name, value in [
            ("command", report.command),
            ("created", report.created),
            *report.versions.items(),
        ]
    )
    return (
        f'<section class="card" id="coverage"><h2>What this rests on</h2>{lines}'
        f"{f'<ul>{lost}</ul>' if lost else ''}{missing}"
        f'<h3>How it was made</h3><table class="plain">{provenance}</table></section>'
    )


def _pack_data(report: Report) -> str:
    """Figures, timeline and the one copy of the plotting library, compressed."""
    require_extra("plot", "a report in HTML")
    figures = {
        a.name: draw_figure(a.result.table, a.result.analysis.chart).to_json()
        for section in report.sections
        for a in section.answers
        if a.result is not None and a.result.analysis.chart is not None
    }
    lanes = report.lanes.packed() if report.lanes else None
    library = b64encode(packed_library()).decode()
    return (
        f'<script type="application/json" id="figures">{embed_json(figures)}</script>'
        f'<script type="application/json" id="dark-colours">{embed_json(dark_of_light())}</script>'
        f'<script type="application/json" id="lane-data">{embed_json(lanes)}</script>'
        f'<script type="text/plain" id="plotly">{library}</script>'
    )
