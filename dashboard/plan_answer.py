"""The layouts of the job that an address describes, and one of them opened."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dash import Patch, html

from htk.answers.output.result import Result
from htk.base.core.humanize import format_bytes, format_duration, pluralize_count
from htk.base.errors import HtkError, UsageError
from htk.dashboard import plan_plots
from htk.dashboard.components import (
    draw_empty_panel,
    draw_plot,
    draw_problem,
    draw_section,
    draw_tile,
)
from htk.dashboard.grids import draw_grid
from htk.dashboard.memo import SingleFlightCache
from htk.dashboard.page import Visit
from htk.dashboard.plan_fields import FieldErrors, PlanRequest, read_request
from htk.dashboard.plan_of_run import read_plan_fields
from htk.planning.plan.search import (
    APART,
    SEARCH_LABEL,
    SearchAnswer,
    join_searches,
    layout_words,
    pareto_front,
    search_plans,
    search_table,
    usual_batch,
)
from htk.planning.plan.step import Plan
from htk.planning.plan.table import MFU
from htk.planning.sites.own_site import SiteInUse, choose_planner, site_in_use

LAYOUT = "layout"
AGAINST = "against"
PICTURE = {"type": "plan-picture", "name": "pareto"}
TABLE = SEARCH_LABEL.name
_MOST_DRAWN = 800  # layouts that are drawn, and what of the front comes after
_MOST_ROWS = 50
_SLOWEST = 4.0  # times the fastest step: slower layouts are nobody's choice, and spoil a picture
_GIB = 2**30
_COLUMNS = (
    "layout", "gpu_count", "step_time_ns", "step_time_ns_lo90", "step_time_ns_hi90",
    "behind_best_pct", "tokens_per_s_per_gpu", "mfu_pct", "peak_memory_bytes", "p_oom",
    "exposed_comm_ns", "bubble_ns", "cost_per_million_tokens", "energy_j_per_token", "run_days",
)  # fmt: skip


@dataclass(frozen=True)
class TradedFor:
    """What is traded for step time."""

    words: str
    title: str
    value: Callable[[Plan], float | None]
    lacking: str = ""  # what to do where it is not known


AGAINST_WHAT: Mapping[str, TradedFor] = {
    "memory": TradedFor("memory", "GiB of the fullest GPU", lambda p: p.memory.total / _GIB),
    "cost": TradedFor(
        "cost",
        "cost of a million tokens",
        lambda p: p.cost_per_million_tokens,
        "Give the price of a GPU-hour to see what tokens cost.",
    ),
    "energy": TradedFor(
        "energy",
        "joules of a token",
        lambda p: p.joules_per_token,
        "The catalogue holds no power of this GPU.",
    ),
}


@dataclass(frozen=True)
class SearchedPlan:
    """What a search gave: the layouts that are shown, from the fastest on."""

    request: PlanRequest
    batch: int
    answer: SearchAnswer  # its plans cut to those drawn
    fitting: int
    site: Path | None = None  # whose own figures were used

    @property
    def keys(self) -> list[str]:
        return [key_of(planned) for planned in self.answer.plans]

    def order_of(self, key: str) -> int:
        """Return the place of a layout; the fastest where there is none of that name."""
        return next((k for k, own in enumerate(self.keys) if own == key), 0)


def key_of(planned: Plan) -> str:
    """Return what names a layout of any of the numbers of GPUs."""
    return f"{planned.job.ranks} GPUs: {layout_words(planned.job)}"


# Of any run and visitor: a search depends on its fields alone.
_SEARCHES: SingleFlightCache[SearchedPlan] = SingleFlightCache(12)


def search_layouts(options: Mapping[str, str]) -> SearchedPlan:
    """Return the layouts for an address, searched once for a site's file as it is."""
    request = read_request(options)
    here = site_in_use()
    state = None if here is None else (str(here.path), here.path.stat().st_mtime_ns)
    return _SEARCHES.get((request, state), lambda: _search_request(request, here))


def _search_request(request: PlanRequest, here: SiteInUse | None) -> SearchedPlan:
    batch = request.batch or usual_batch(request.jobs[0])
    planned = choose_planner(here)
    try:
        answer = join_searches([search_plans(job, batch, planned) for job in request.jobs])
    except UsageError:
        raise FieldErrors({"gpus": "too many layouts to search: fewer GPUs at once"}) from None
    drawn = _select_some(answer.plans, _MOST_DRAWN // len(request.jobs))
    site = None if here is None else here.path
    return SearchedPlan(
        request,
        batch,
        replace(answer, plans=drawn, front=_find_front(drawn)),
        len(answer.plans),
        site,
    )


def _select_some(plans: Sequence[Plan], most: int) -> tuple[Plan, ...]:
    """Return the fastest layouts of each number of GPUs, and those of the front that are not slow
    beside them."""
    front = _find_front(plans)
    best = dict[int, float]()
    count = Counter[int]()
    kept = []
    for order, planned in enumerate(plans):
        ranks = planned.job.ranks
        count[ranks] += 1
        is_slow = planned.step_ns > _SLOWEST * best.setdefault(ranks, planned.step_ns)
        if not is_slow and (count[ranks] <= most or order in front):
            kept.append(planned)
    return tuple(kept)


def _find_front(plans: Sequence[Plan]) -> frozenset[int]:
    return pareto_front([planned.memory.total for planned in plans])


def build_plan_table(visit: Visit) -> Result:
    """Return the fastest layouts, and those that none beats in time and memory, as a table."""
    plan = search_layouts(read_plan_fields(visit))
    return _build_result(plan)


def _build_result(plan: SearchedPlan) -> Result:
    rows = _select_rows(plan)
    shown = replace(plan.answer, plans=rows, front=_find_front(rows))
    return Result(SEARCH_LABEL, search_table(shown, len(rows)), {"batch": plan.batch})


def _select_rows(plan: SearchedPlan) -> tuple[Plan, ...]:
    """Return the layouts that stand in the table."""
    return _select_some(plan.answer.plans, _MOST_ROWS // len(plan.request.jobs))


def draw_plan_answer(visit: Visit) -> Any:
    """Return the picture and the table of layouts."""
    try:
        plan = search_layouts(read_plan_fields(visit))
    except FieldErrors as error:
        return draw_problem(str(error), "The fields cannot be planned")
    if not plan.answer.plans:
        return draw_section("No layout fits", draw_empty_panel(_nothing_fits(plan)))
    return html.Div(
        [
            html.P(_write_lead(plan), className="lead", id="plan-lead"),
            draw_section(
                "Layouts by step time", _draw_picture(visit, plan),
                note=f"{_describe_drawn(plan)} Bars: where nine of ten, and half, of such steps "
                "lie. A click opens a layout below.",
            ),
            draw_section(
                "Best layouts", _draw_table(visit, plan), note="A click on a row opens it below."
            ),
        ]
    )  # fmt: skip


def _describe_drawn(plan: SearchedPlan) -> str:
    drawn = len(plan.answer.plans)
    if drawn == plan.fitting:
        return "All that fit."
    return f"{drawn:,} of the {plan.fitting:,} that fit, the fastest first."


def _write_lead(plan: SearchedPlan) -> str:
    best = plan.answer.plans[0]
    job = plan.answer.plans[0].job
    low, high = best.interval(90)
    near = sum(p.step_ns <= (1 + APART) * best.step_ns for p in plan.answer.plans)
    cannot = (
        f" {pluralize_count(near, 'layout')} within {100 * APART:.0f} % of it cannot be told apart "
        "by plans: run those first."
        if near > 1
        else ""
    )
    return (
        f"{job.model.name} on {job.ranks} {job.gpu.device_name}, {plan.batch:,} sequences of"
        f" {job.seq:,} tokens a step: {format_duration(best.step_ns)}, nine of ten such between"
        f" {format_duration(low)} and {format_duration(high)}. {plan.fitting:,} of"
        f" {plan.answer.tried:,} layouts fit.{cannot}"
    )


def _nothing_fits(plan: SearchedPlan) -> str:
    if not plan.answer.tried:
        return (
            f"No layout divides a batch of {plan.batch:,} sequences evenly. Try a global batch that"
            " is a multiple of the number of GPUs."
        )
    return (
        f"None of {plan.answer.tried:,} layouts fits in memory. Try more GPUs, GPUs with more"
        " memory, or a shorter sequence."
    )


def _draw_picture(visit: Visit, plan: SearchedPlan) -> Any:
    objective = _find_objective(visit)
    values = [objective.value(p) for p in plan.answer.plans]
    numbers = [v for v in values if v is not None]
    if len(numbers) < len(values):
        return draw_empty_panel(objective.lacking)
    layouts = plan_plots.Layouts(
        plan.answer.plans, plan.keys, numbers, pareto_front(numbers),
        plan.order_of(visit.option(LAYOUT, "")), objective.title,
        plan.answer.plans[0].job.gpu.memory_bytes / _GIB if objective.words == "memory" else None,
    )  # fmt: skip
    return draw_plot(
        plan_plots.draw_pareto(layouts, visit.dark), "layouts by step time", PICTURE, 400
    )


def ring_at(visit: Visit) -> Patch:
    """Return the change of the picture that puts its ring around the layout of the address."""
    plan = search_layouts(read_plan_fields(visit))
    objective = _find_objective(visit)
    order = plan.order_of(visit.option(LAYOUT, ""))
    chosen = plan.answer.plans[order]
    ring = Patch()
    ring["data"][-1]["x"] = [chosen.step_ns / 1e9]
    ring["data"][-1]["y"] = [objective.value(chosen)]
    return ring


def _find_objective(visit: Visit) -> TradedFor:
    return AGAINST_WHAT.get(visit.option(AGAINST, "memory"), AGAINST_WHAT["memory"])


def _draw_table(visit: Visit, plan: SearchedPlan) -> Any:
    rows = _build_result(plan)
    some = {name for name in _COLUMNS if rows.table[name].null_count < len(rows.table)}
    several = len({p.job.ranks for p in plan.answer.plans}) > 1
    columns = tuple(n for n in _COLUMNS if n in some and (several or n != "gpu_count"))
    return draw_grid(rows, visit, read_plan_fields(visit), rows=10, only=columns)


def layout_of_row(plan: SearchedPlan, row: int) -> str:
    """Return the layout that stands in a row of the table."""
    rows = _select_rows(plan)
    return key_of(rows[row]) if 0 <= row < len(rows) else ""


def draw_opened_layout(visit: Visit) -> Any:
    """The layout that was chosen, else the fastest: what its step and its memory consist of."""
    try:
        plan = search_layouts(read_plan_fields(visit))
    except HtkError:
        return html.Div()  # said above
    if not plan.answer.plans:
        return html.Div()
    planned = plan.answer.plans[plan.order_of(visit.option(LAYOUT, ""))]
    halves = [
        draw_section(
            "What the step consists of",
            draw_plot(
                plan_plots.draw_step_parts(planned, visit.dark), "parts of the step", None, 300
            ),
        ),
        draw_section(
            "Memory by stage",
            draw_plot(plan_plots.draw_stage_memory(planned, visit.dark), "memory by stage", None,
                 max(220, min(160 + 26 * planned.job.pipeline_parallel, 700))),
            note="Memory of a GPU at its peak; dashed: its capacity.",
        ),
    ]  # fmt: skip
    return html.Div(
        [
            html.H2(layout_words(planned.job), className="opened", id="plan-opened"),
            html.Div(_draw_tiles(planned), className="tiles"),
            html.Div(halves, className="halves"),
            draw_section(
                "What a GPU sends in a step",
                _draw_ledger(planned),
                note="The sum of all transfers, exposed or not.",
            ),
            *_rests_on(planned, plan.site),
        ]
    )


def _draw_tiles(planned: Plan) -> list[Any]:
    low, high = planned.interval(90)
    parts = planned.parts
    shown = [
        draw_tile(
            "step time",
            format_duration(planned.step_ns),
            f"{format_duration(low)} to {format_duration(high)} (90 %)",
        ),
        draw_tile(
            "tokens/s",
            f"{planned.tokens_per_s:,.0f}",
            f"{planned.tokens_per_s / planned.job.ranks:,.0f} a GPU",
        ),
        draw_tile("MFU", f"{100 * planned.mfu:.1f} %", "of the dense 16-bit peak"),
        draw_tile(
            "peak memory",
            format_bytes(planned.memory.total),
            f"out of memory: {100 * planned.p_oom:.0f} %",
            kind="alert" if planned.p_oom > _RISKY else "",
        ),
        draw_tile(
            "exposed communication",
            format_duration(parts.exposed),
            f"{100 * parts.exposed / planned.step_ns:.1f} % of the step",
        ),
    ]
    if planned.cost_per_million_tokens is not None:
        shown.append(draw_tile("a million tokens", f"{planned.cost_per_million_tokens:.3g}"))
    if planned.joules_per_token is not None:
        shown.append(draw_tile("energy", f"{planned.joules_per_token:.3g} J", "a token"))
    if planned.run_days is not None:
        shown.append(draw_tile("the run", f"{planned.run_days:,.1f} days", "without failures"))
    return shown


_RISKY = 0.2


def _draw_ledger(planned: Plan) -> Any:
    if not planned.transfers:
        return draw_empty_panel("Nothing: a single GPU sends nothing.")
    heads = ("parallelism", "pass", "collective", "GPUs", "handed in", "sent", "time")
    rows = [
        (
            t.kind, t.phase, t.collective.replace("_", " "), f"{t.ranks:,}",
            format_bytes(t.input_bytes), format_bytes(t.wire_bytes), format_duration(t.duration_ns),
        )
        for t in planned.transfers
    ]  # fmt: skip
    return html.Table(
        [
            html.Thead(html.Tr([html.Th(h) for h in heads])),
            html.Tbody([html.Tr([html.Td(cell) for cell in row]) for row in rows]),
        ],
        className="runs numbers",
    )


def _rests_on(planned: Plan, site: Path | None) -> list[Any]:
    certainty = planned.certainty
    model = planned.job.model
    size = f"{model.name}, {model.parameters / 1e9:,.2f} billion parameters"
    if model.active_parameters != model.parameters:
        size += f", {model.active_parameters / 1e9:,.2f} of them active"
    lines = [
        ("Model", size),
        ("Compared with measured jobs", "; ".join(certainty.checked)),
        ("Never held against any", "; ".join(certainty.unchecked)),
        ("Site's own figures", "" if site is None else f"{site.name}, by htk calibrate"),
        ("MFU", MFU.removeprefix("MFU: ")),
    ]
    return [html.P([html.B(f"{head}: "), text], className="doc") for head, text in lines if text]
