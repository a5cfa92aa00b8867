"""What stragglers cost a whole job: heat map of its workers, steps over time, causes, what-ifs."""

from typing import Any

from dash import html

from htk.base.core.humanize import format_duration
from htk.base.mappings import Fields
from htk.dashboard import headlines, plots
from htk.dashboard.components import (
    draw_answer,
    draw_coverage,
    draw_empty_panel,
    draw_plot,
    draw_section,
    draw_tile,
)
from htk.dashboard.grids import draw_grid, draw_question
from htk.dashboard.page import Page, Visit, draw_panel
from htk.quantities.straggler.causes import SLOW

_QUESTION = "What do stragglers cost the job?"


def layout(_visit: Visit) -> Any:
    return html.Div(
        [
            headlines.draw_heading("job", _QUESTION),
            draw_panel("job", "tiles", 110),
            draw_panel("job", "causes", 300),
            html.Div(
                [draw_panel("job", "workers", 460), draw_panel("job", "steps", 460)],
                className="halves",
            ),
            html.Div(
                [draw_panel("job", "types", 420), draw_panel("job", "stages", 420)],
                className="halves",
            ),
            draw_panel("job", "whatif", 420),
        ]
    )


def _draw_tiles(visit: Visit) -> Any:
    job, likely = _find_slowdown(visit)
    named = likely["cause"].replace("_", " ") if likely else "none stands out"
    recorded = int(job["recorded_ms"] * 1e6)
    excess = int(job["excess_ms"] * 1e6)
    delays = f"launch delays {job['launch_slowdown']:.3f}x"
    tiles = html.Div(
        [
            draw_tile("slowdown", f"{job['slowdown']:.2f}x", "over a job without stragglers"),
            draw_tile("of a step", format_duration(excess), f"of {format_duration(recorded)}"),
            draw_tile("GPU hours", f"{job['excess_gpu_hours']:.3g}", "over the recorded steps"),
            draw_tile("likely cause", named, delays),
        ],
        className="tiles",
    )
    lead = []
    if likely:
        evidence = likely["evidence"][:1].upper() + likely["evidence"][1:]
        lead.append(html.P(f"{evidence}. To decide it: {likely['advice']}."))
    return html.Div([*lead, tiles])


def _find_slowdown(visit: Visit) -> tuple[Fields, Fields | None]:
    """Return how much slower the job is, and the likely cause, where one is."""
    job = visit.ask("straggler_slowdown").table.slice(0, 1).to_pylist()[0]
    causes = visit.ask("straggler_causes").to_pylist()
    return job, next((row for row in causes if row["likely"]), None)


def _describe_cost(visit: Visit) -> tuple[str, str]:
    """Return what stragglers cost, in words."""
    job, likely = _find_slowdown(visit)
    excess = format_duration(int(job["excess_ms"] * 1e6))
    step = format_duration(int(job["recorded_ms"] * 1e6))
    if job["slowdown"] < SLOW:
        return f"Stragglers cost little: {excess} of a step of {step}", ""
    cause = likely["cause"].replace("_", " ") if likely else "none stands out"
    return (
        f"A step of {step} would be {excess} shorter if no operation were slower than its peers",
        f"Likely cause: {cause}",
    )


def _draw_workers(visit: Visit) -> Any:
    """Return one cell for each worker: the slowdown if it alone took as long as it did."""
    result = visit.ask("slowdown_by_worker")
    rows = result.to_pylist()
    replicas = sorted({row["dp_rank"] for row in rows})
    stages = sorted({row["stage"] for row in rows})
    value = {(row["dp_rank"], row["stage"]): row["slowdown"] for row in rows}
    cells = [[value[replica, stage] for replica in replicas] for stage in stages]
    fig = plots.draw_heat_map(
        [str(replica) for replica in replicas],
        [str(stage) for stage in stages],
        cells,
        dark=visit.dark,
        title="slowdown",
        hover="dp rank %{x}, stage %{y}: %{z:.3f}x<extra></extra>",
        xaxis={"title": "data-parallel rank", "type": "category"},
        yaxis={"title": "stage", "type": "category", "autorange": "reversed"},
    )
    drawn = draw_plot(fig, "slowdown by worker", None, min(180 + 34 * max(len(stages), 3), 900))
    table = draw_grid(result, visit, {}, rows=6)
    return draw_section("Which worker slows the job?", drawn, table, *draw_coverage(result)[1:])


def _draw_steps(visit: Visit) -> Any:
    result = visit.ask("straggler_slowdown")
    if result.table.num_rows < 2:
        return draw_section("Steps over time", draw_empty_panel("No whole step was recorded."))
    steps = type(result)(result.analysis, result.table.slice(1), result.coverage)
    return draw_section(
        "Steps over time", draw_answer(steps, dark=visit.dark), draw_grid(result, visit, {}, rows=6)
    )


def _build_question_panel(name: str, heading: str) -> Any:
    return lambda visit: draw_section(heading, *draw_question(visit, name))


PAGE = Page(
    "job",
    "Stragglers of a job",
    16,
    layout,
    {
        headlines.PART: headlines.fill_heading(_QUESTION, _describe_cost),
        "tiles": _draw_tiles,
        "causes": _build_question_panel("straggler_causes", "Why is it slower?"),
        "workers": _draw_workers,
        "steps": _draw_steps,
        "types": _build_question_panel("slowdown_by_type", "Which type of operation?"),
        "stages": _build_question_panel("slowdown_by_stage", "Which stage?"),
        "whatif": _build_question_panel("straggler_whatif", "What would a step take without them?"),
    },
    group="Dig into",
    needs=("job_operations",),
)
