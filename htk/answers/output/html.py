"""Results as HTML that stands alone: tables that sort, filter and page, without a server."""

import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from htk.answers.output.coverage_text import coverage_lines
from htk.answers.output.figure_colours import colour_of, is_waiting, meaning_of
from htk.answers.output.render import PROSE, RenderedColumn, left_out, text_columns
from htk.answers.output.result import Result
from htk.answers.output.tokens import LIGHT, blend_colour, css_variables

ROWS = 500  # of a table; the machine formats hold all
_PAGE = 12
_PLAIN = "font:13px/1.5 system-ui,sans-serif;max-width:900px"  # of a card without its style


def to_html(result: Result) -> str:
    """For a notebook: the question, the table, what it rests on. Every text is escaped."""
    style = read_asset("table.css")
    script = read_asset("table.js")
    return (
        f"<style>{style}</style><p><b>{escape(result.analysis.question)}</b></p>"
        + render_table(result)
        + f"<script>(() => {{{script}\n"
        + 'document.querySelectorAll(".htk-t").forEach(htkTable)})()</script>'
    )


def render_table(result: Result, *, rows: int = ROWS, page: int = _PAGE) -> str:
    """The table and its notes; sorts and pages where its script and style are on the page."""
    columns = text_columns(result, rows)
    head = "".join(
        f'<th{_spell_class(c)} title="{escape(c.doc)}">{escape(_render_heading(c))}</th>'
        for c in columns
    )
    lines = [
        "<tr>" + "".join(_render_cell(column, k) for column in columns) + "</tr>"
        for k in range(min(rows, len(result)))  # rows for people to read
    ]
    notes = left_out(result, rows, []) + coverage_lines(result.coverage)
    footer = "".join(f"<div>{escape(line)}</div>" for line in notes)
    return (
        f'<div class="htk-t" data-page="{page}"><div class="scroll"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
        f'<div class="notes">{footer}</div></div>'
    )


def spell_look(name: str, number: int) -> str:
    """Return the style of a share of the time: colour by meaning, waiting striped, idle pale.

    Each has a plain colour in hexadecimal: notebooks that are not trusted lose gradients, variables
    and newer ways to write a colour. Where they are kept the colour is that of the card's scheme.
    """
    colour = colour_of(name, LIGHT, number)
    if name.startswith("idle") or "between" in name:
        share = 1 - 0.2 * (number % 4)
        plain = blend_colour(LIGHT["idle"], LIGHT["panel"], share)
        mixed = f"color-mix(in srgb,var(--idle,{LIGHT['idle']}) {100 * share:.0f}%,"
        return f"background-color:{plain};background:{mixed}var(--panel,{LIGHT['panel']}))"
    if is_waiting(name):
        plain = blend_colour(colour, LIGHT["panel"], 0.5)
        stripes = f"var(--comm,{colour}) 0 3px,var(--wait,{LIGHT['wait']}) 3px 7px"
        return f"background-color:{plain};background:repeating-linear-gradient(135deg,{stripes})"
    meaning = meaning_of(name)
    return f"background-color:{colour}" + (
        f";background:var(--{meaning},{colour})" if meaning and LIGHT[meaning] == colour else ""
    )


def wrap_in_card(inside: str) -> str:
    """Return a card of a notebook: in the colours of its theme where it says it (JupyterLab, VS
    Code, Colab), else in those that the reader's system asks for."""
    theme_marks = ('[data-jp-theme-light="{}"]', ".vscode-{}", '[theme="{}"]')
    light = [
        where.format(word)
        for where, word in zip(theme_marks, ("true", "light", "light"), strict=True)
    ]
    dark = [
        where.format(word)
        for where, word in zip(theme_marks, ("false", "dark", "dark"), strict=True)
    ]
    own = {name: css_variables(dark=name == "dark") for name in ("light", "dark")}
    style = (
        f".htk-card {{ {own['light']} font: 13px/1.5 system-ui, sans-serif; "
        "max-width: 900px; padding: 12px 16px; background: var(--panel); color: var(--ink); "
        "border: 1px solid var(--line); border-radius: 10px }\n"
        ".htk-card table, .htk-card tr, .htk-card td, .htk-card th { background: none !important; "
        "color: inherit; border: 0 }\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not(:has({', '.join(light)})):not("
        f"{', '.join(light)}) .htk-card {{ {own['dark']} }} }}\n"
        f":is({', '.join(dark)}) .htk-card {{ {own['dark']} }}"
    )
    return f'<style>{style}</style><div class="htk-card" style="{_PLAIN}">{inside}</div>'


def share_bar(shares: Sequence[tuple[str, float]]) -> str:
    """Return the shares of the time as one bar and its legend, for a notebook."""
    seen = [(k, name, pct) for k, (name, pct) in enumerate(shares) if pct >= 0.05]
    bars = "".join(
        f'<span style="flex:{pct:.3f};{spell_look(name, k)}"'
        f' title="{escape(name)} {pct:.1f} %"></span>'
        for k, name, pct in seen
    )
    keys = "".join(
        f'<span style="margin-right:16px;white-space:nowrap"><i style="display:inline-block;'
        f'width:11px;height:11px;border-radius:2px;{spell_look(name, k)}"></i> '
        f"{escape(name)} {pct:.1f} %</span>"
        for k, name, pct in seen
    )
    return (
        '<div style="display:flex;height:20px;border-radius:5px;overflow:hidden;margin:6px 0 4px">'
        f'{bars}</div><div style="font-size:12px;display:flex;flex-wrap:wrap">{keys}</div>'
    )


@cache
def read_asset(name: str, package: str = "htk.answers.output") -> str:
    """Return a style sheet or script that comes with htk."""
    return (files(package) / "assets" / name).read_text(encoding="utf-8")


def embed_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _spell_class(column: RenderedColumn) -> str:
    if not column.is_text:
        return ""
    return ' class="text prose"' if column.heading in PROSE else ' class="text"'


def _render_heading(column: RenderedColumn) -> str:
    """Return a heading without a unit that each cell has."""
    return column.heading.removesuffix(" %") if column.shares else column.heading


def _render_cell(column: RenderedColumn, k: int) -> str:
    value = column.values[k]
    text = escape(column.cells[k])
    if column.shares:
        share = column.shares[k]
        amount = text.removesuffix(share).rstrip()
        unit = "" if share.endswith(("–", "x")) else " %"
        text = f'{amount}<small class="share">{share}{unit}</small>'
    if not column.is_text:
        plain = "" if value is None else repr(int(value) if isinstance(value, bool) else value)
        return f'<td data-v="{escape(plain)}">{text}</td>'
    title = f' title="{escape(str(value))}"' if value is not None and str(value) != text else ""
    return f"<td{_spell_class(column)}{title}>{text}</td>"
