"""docs/benchmarks.md, from the figures that the benchmarks left."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.goals import Goal, goals

_LINE = 15  # pixels between two labels
_INTRODUCTION = """\
# Benchmarks

Written by `python -m bench --tracelens CHECKOUT`. Figures are ratios of one run on one machine, in
which contestants take turns: seconds differ from machine to machine, ratios much less. CPU time is
user and system time of a process and its children, imports included unless stated otherwise.
Below each part stands the day it was measured on; where it says so, what `import numpy,
pyarrow.compute` took then: the machine is shared, and twice as fast on some days as on others.
"""
_COMMANDS = """\
## Commands as typed

Each cell is CPU time as a multiple of that of `import numpy, pyarrow.compute` with one thread,
which every table needs; htk is an installed wheel, as typed. *Cold*: nothing cached. *Warm*: the
tables are cached, the question is new. *Again*: the same question once more. The other tools are
asked the closest question by a short script; TraceLens reads one rank after the other.
"""
_ROWS_BY = """\
## Rows by operator, module, line

`kernel-top --by …` of one large trace, cold: CPU time over that of kernel-top alone.
"""
_INGEST = """\
## Reading a trace

One trace ({trace}), imports apart. *raw*: JSON to columns; *linked*: all tables, every kernel
linked to its launch and operator; *pure*: without the compiled reader. The limit is a C++ program
that unpacks with isa-l and reads every key and value with simdjson (`bench/neighbour.cpp`): *fresh*
in a process of its own, *best* of seven times with memory that it already holds.
"""
_ANALYSES = """\
## Questions by size

Seconds of CPU for all questions that the made-up tables of one rank can answer, and for the tables
that they share; the power of the number of events by which the slowest grow (1 is linear). Below,
what simulated jobs of experts can answer, for what needs several ranks.

![CPU time against events](img/benchmarks-growth.svg)
"""
_WHATIF = """\
## What-ifs

A step of eight ranks; each figure is the best of some runs of one process.
"""
_REACH = """\
## Many ranks

Small simulated ranks, each command in a process of its own; memory is anonymous memory, of which
mapped files are no part.
"""
_GOALS = """\
## Goals

What is aimed at, and what the runs above came to. Commands count in multiples of the imports of
NumPy and Arrow; seconds are those of the machines named above. What is aimed at for many ranks and
for one large file is in [Many ranks](scale.md#measurements).
"""
_TIMELINE = """\
## The timeline

Made-up events on eight ranks; a request is one screen of 1920 pixels, packed.
"""
_DASHBOARD = """\
## The dashboard

Eight simulated ranks, every page answered once before. In ms, as one person's Chromium draws it, on
the machine that serves it: the first page in browsers just started, which hold no script yet; then
changes of page, complete with all that is in sight or near it; then moves of the what-if sliders.
The first screen is the verdict, the cards, the time of each rank and the causes. Below, requests of
people who click at once.
"""


def written(kept: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the page, and the picture of cost against size (empty without its figures)."""
    sections: Mapping[str, tuple[str, Callable[[Any], str]]] = {
        "commands": (_COMMANDS, _commands),
        "rows_by": (_ROWS_BY, _rows_by),
        "ingest": (_INGEST, _ingest),
        "analyses": (_ANALYSES, _analyses),
        "whatif": (_WHATIF, _whatif),
        "reach": (_REACH, _reach),
        "timeline": (_TIMELINE, _timeline),
        "dashboard": (_DASHBOARD, _dashboard),
    }
    parts = [_INTRODUCTION]
    for name, (text, body) in sections.items():
        if name in kept:
            figures = kept[name]["figures"]
            trace = figures.get("trace", "") if isinstance(figures, dict) else ""
            head = text.replace("{trace}", trace)
            parts += [head, body(figures), f"{_ran(kept[name]['ran'])}\n"]
    if kept:
        parts += [_GOALS, _aims(goals(kept))]
    picture = _picture(kept["analyses"]["figures"]["analyses"]) if "analyses" in kept else ""
    return "\n".join(parts), picture


def _ran(facts: Mapping[str, Any]) -> str:
    load = " to ".join(f"{value:g}" for value in facts["load"])
    speed = f", imports {facts['imports_s']} s" if "imports_s" in facts else ""
    return (
        f"*{facts['date']}, {facts['cores']} cores ({facts['machine']}), Python {facts['python']}, "
        f"load {load}{speed}.*"
    )


def _commands(figures: Mapping[str, Any]) -> str:
    columns = ["cold", "warm", "again", "HTA", "TraceLens"]
    rows = []
    for row in figures["commands"]:
        ratios = row["times_imports"]
        beside = [
            f"{ratios[tool] / ratios['cold']:.1f} / {ratios[tool] / ratios['warm']:.1f}"
            if tool in ratios
            else "–"
            for tool in ("HTA", "TraceLens")
        ]
        cells = [f"{ratios[c]:.1f}" if c in ratios else "–" for c in columns]
        rows.append([f"`{row['question']}`", row["input"], *cells, *beside])
    head = ["question", "input", *columns, "HTA / cold, warm", "TraceLens / cold, warm"]
    starting = figures["starting"]["times_imports"]
    starts = ", ".join(f"`{n}` {v:.1f}" for n, v in starting.items() if n != "imports")
    return f"{_table(head, rows)}\nStart-up alone: {starts}.\n"


def _rows_by(figures: Mapping[str, Any]) -> str:
    ratios = figures["times_kernel_top"]
    return _table([f"`{word}`" for word in ratios], [[f"{value:.2f}" for value in ratios.values()]])


def _ingest(figures: Mapping[str, Any]) -> str:
    rows = [[f"{n}, HTA's CPU time over it", v] for n, v in figures["cpu_ratio_to_hta"].items()]
    if "eight_ranks_cpu_ratio_to_hta" in figures:
        rows.append(["linked, eight ranks, likewise", figures["eight_ranks_cpu_ratio_to_hta"]])
    if "linked_memory_of_hta" in figures:
        rows.append(["linked, its memory over HTA's", figures["linked_memory_of_hta"]])
    for name, value in figures.get("raw_speed_of_neighbour", {}).items():
        rows.append([f"raw, speed over the limit's ({name})", value])
    return _table(["", "ratio"], rows)


def _analyses(figures: Mapping[str, Any]) -> str:
    rows = [
        [
            size,
            len(part["analyses_s"]),
            f"{sum(part['analyses_s'].values()) + sum(part['shared_s'].values()):.2f}",
            f"{part['slowest_s'][0]} {part['slowest_s'][1]:.2f}",
            f"{part['most_mb'][1]:,.0f} MB",
        ]
        for size, part in _sizes(figures).items()
    ]
    powers = sorted(figures["growth_of_analyses"].items(), key=lambda item: -item[1])[:8]
    grow = ", ".join(f"`{name}` {power:.2f}" for name, power in powers)
    table = _table(["", "questions", "all, s", "the slowest, s", "most memory"], rows)
    return f"{table}\nFastest growing: {grow}.\n"


def _sizes(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the costs of made-up tables of a rank and of simulated jobs, by what they are."""
    jobs = figures.get("jobs", {})
    return figures["analyses"] | {f"eight ranks, {size}": part for size, part in jobs.items()}


def _whatif(figures: Sequence[Mapping[str, Any]]) -> str:
    timed = [row for row in figures if "ms" in row]
    rows = [
        [r["what"], f"{r['activities']:,}", f"{r['ms']:,.0f}", f"{r['limit_ms']:,.0f}"]
        for r in timed
    ]
    return _table(["", "activities", "ms", "goal, ms"], rows)


def _reach(figures: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [r["command"], r["cpu_s_ratio"], r["anonymous_mb"], r["anonymous_mb_ratio"]]
        for r in figures
    ]
    return _table(["command", "CPU, over the first of its kind", "MB", "MB, likewise"], rows)


def _timeline(figures: Mapping[str, Any]) -> str:
    names = [n for n, v in next(iter(figures.values())).items() if isinstance(v, int | float)]
    rows = [[n, *(_three_digits(part[n]) for part in figures.values())] for n in names]
    return _table(["", *figures], rows)


def _dashboard(figures: Mapping[str, Any]) -> str:
    browser, users = figures["browser"], figures["users"]
    seen = [[name, row["p50_ms"], row["p95_ms"], row["of"]] for name, row in browser.items()]
    kinds = [
        [name, f"{row['p50_ms']:.0f}", f"{row['p95_ms']:.0f}", row["requests"]]
        for name, row in users["by_kind"].items()
    ]
    memory = users["memory_mb"]
    facts = (
        f"{users['users']} people: {users['requests']} requests, {users['failures']} failed; the "
        f"server held {memory['before']:.0f} MB before and {memory['after']:.0f} MB after."
    )
    head = ("p50", "p95", "of")
    apart = [f"{_ran(figures['browser_ran'])}\n"] if "browser_ran" in figures else []
    return "\n".join(
        [_table(("seen", *head), seen), *apart, facts, "", _table(("request", *head), kinds)]
    )


def _aims(aims: Sequence[Goal]) -> str:
    """Return a table of all goals, and below it what stands in the way of those not met."""
    rows = [
        [
            aim.what,
            f"{'≥' if aim.is_least else '≤'} {aim.limit:,g} {aim.unit}",
            "–" if aim.measured is None else _three_digits(aim.measured),
            aim.verdict,
        ]
        for aim in aims
    ]
    missed = {a.obstacle: a for a in aims if a.obstacle and a.measured and not a.is_met}
    names = {
        obstacle: ", ".join(a.what for a in aims if a.obstacle == obstacle and not a.is_met)
        for obstacle in missed
    }
    lines = "".join(f"- {names[obstacle]}: {obstacle}.\n" for obstacle in missed)
    table = _table(["", "goal", "measured", ""], rows)
    return f"{table}\nWhat stands in the way:\n\n{lines}" if lines else table


def _three_digits(value: float) -> str:
    """Return the number with three digits, or with all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def _picture(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an SVG of the seconds of the slowest questions against events, both logarithmic."""
    sizes = [int(name.split()[0]) for name in parts]
    times = [part["analyses_s"] | part["shared_s"] for part in parts.values()]
    shown = sorted(times[-1], key=lambda name: -times[-1][name])[:6]
    wide, high, left, low = 720, 360, 60, 40
    least = min(max(t.get(n, 1e-3), 1e-3) for t in times for n in shown)
    most = max(t.get(n, least) for t in times for n in shown)
    across = math.log(max(sizes) / min(sizes)) or 1.0
    up = math.log(most / least) or 1.0

    def point(size: int, seconds: float) -> str:
        x = left + (wide - left - 180) * math.log(size / min(sizes)) / across
        y = high - low - (high - 2 * low) * math.log(max(seconds, least) / least) / up
        return f"{x:.0f},{y:.0f}"

    lines, label_y = [], 0
    for k, name in enumerate(shown):  # the slowest, which stands highest, first
        path = [point(s, t[name]) for s, t in zip(sizes, times, strict=True) if name in t]
        x, y = map(int, path[-1].split(","))
        label_y = max(y + 4, label_y + _LINE)
        color = f"hsl({60 * k}, 55%, 42%)"
        lines.append(
            f'<polyline points="{" ".join(path)}" fill="none" stroke="{color}" stroke-width="2"/>'
            f'<text x="{x + 8}" y="{label_y}" fill="{color}">{name} {times[-1][name]:.2g} s</text>'
        )
    for size in sizes:
        middle = point(size, least).split(",")[0]
        lines.append(
            f'<text x="{middle}" y="{high - 12}" text-anchor="middle">{size:,} events</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        'font-family="sans-serif" font-size="12" fill="#55627A">'
        f'<text x="8" y="20">CPU seconds, logarithmic: {least:.2g} to {most:.2g}</text>'
        f"{''.join(lines)}</svg>\n"
    )
