"""`htk plan`: what a described model needs on a described cluster, without any trace."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import format_bytes, format_duration
from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields
from htk.faces.cli.commands.cells import NONE, Cell, cell_of, interval_of, print_rows
from htk.faces.cli.commands.common import writing_options
from htk.faces.cli.commands.options import refuse_unused
from htk.faces.cli.commands.plan_options import PlanCommand, build_planned_job, training_options

if TYPE_CHECKING:
    from htk.answers.output.result import Result
    from htk.planning.plan.job import PlannedJob
    from htk.planning.plan.step import Plan
    from htk.planning.sites.own_site import SiteInUse


_NEEDS = {
    **dict.fromkeys(("sequence_parallel", "overlap_tensor"), ("tensor_parallel", "searching")),
    "oversubscription": ("pod_gpus",),
}


@click.command("plan", cls=PlanCommand)
@click.option(
    "--show",
    type=click.Choice(["steps", "parts", "ledger", "stages"]),
    default="steps",
    show_default=True,
    help="What of the plan: steps, their parts, what is sent, memory by stage.",
)
@click.option("--search", "searching", is_flag=True, help="Find the best layouts that fit.")
@training_options
@writing_options
def command(
    show: str,
    site: str | None,
    searching: bool,
    form: str,
    output: str | None,
    limit: int,
    **arguments: Any,
) -> None:
    """What would training this model on this cluster take: time, memory, cost?

    Predicted without a trace, one row per sharding strategy; with any other parallelism, the
    distributed optimizer alone. `least GPUs` is the smallest number of GPUs that suffices. The
    interval reflects by how much such plans missed measured jobs, and is wider for what was never
    checked. With --search: every layout of these GPUs, the fastest that fit first.
    Inference servers are planned by `htk plan-serving`.
    """
    from htk.answers.output.render import write_result
    from htk.base.core.defer_imports import spare_pandas

    spare_pandas()
    refuse_unused(_NEEDS)
    from htk.planning.sites.own_site import choose_planner, site_in_use

    here = site_in_use(site)
    planned = choose_planner(here)
    if searching:
        _search_layouts(arguments, planned, here, form, output, limit)
        return
    compared = arguments["strategy"] is None
    job = build_planned_job(arguments)
    split = (job.tensor_parallel, job.pipeline_parallel, job.context_parallel, job.expert_parallel)
    from htk.planning.plan.table import list_strategies

    plans = [planned(j) for j in (list_strategies(job) if compared and max(split) == 1 else [job])]
    answer = _build_answer(plans, show, here)
    write_result(
        answer, form, output, limit=limit,
        printer=lambda file: _print_plans(answer, plans, show, limit, file),
    )  # fmt: skip


def _search_layouts(
    arguments: Fields,
    planned: "Callable[[PlannedJob], Plan]",
    here: "SiteInUse | None",
    form: str,
    output: str | None,
    limit: int,
) -> None:
    from htk.answers.output.render import write_result
    from htk.answers.output.result import Result
    from htk.planning.plan.search import SEARCH_LABEL, search_plans, search_table, usual_batch

    batch = arguments.pop("global_batch")
    job = build_planned_job({**arguments, "global_batch": None})
    sequences = batch or usual_batch(job)
    layouts = search_plans(job, sequences, planned)
    if not layouts.plans:
        raise UsageError(
            f"none of {layouts.tried} layouts fits {job.ranks} {job.gpu.device_name}:"
            " more GPUs, or a smaller batch or length"
        )
    facts = facts_of(list(layouts.plans[:1]), here) | {
        "batch": sequences,
        "tried": layouts.tried,
        "too_large": layouts.too_large,
        "front": len(layouts.front),
    }
    facts.pop("ledger")
    answer = Result(SEARCH_LABEL, search_table(layouts, max(limit, _BEST)), facts)
    write_result(
        answer, form, output, limit=limit, printer=lambda file: _print_search(answer, limit, file)
    )


_BEST = 20  # layouts that people are shown, and what of the front comes after


def _print_search(answer: "Result", limit: int, target: Any) -> None:
    from htk.planning.plan.search import APART

    facts = answer.coverage
    target.write(
        f"{facts['model']}, on {facts['cluster']}, {facts['batch']} sequences a step\n"
        f"{facts['tried']:,} layouts, of which {facts['tried'] - facts['too_large']:,} fit;"
        " * none is both faster and smaller\n\n"
    )
    rows = [row for order, row in enumerate(answer.to_pylist()) if order < _BEST or row["on_front"]]
    print_rows(answer.analysis, rows, _SEARCHED, min(limit, 2 * _BEST), target)
    target.write(
        f"\nLayouts less than {100 * APART:.0f} % apart cannot be told apart: run those first."
        f"\n{facts['mfu']}\n"
    )
    _print_checked(facts, target)


def _print_checked(facts: Facts, target: Any) -> None:
    for heading in ("checked", "unchecked"):
        if facts[heading]:
            target.write(f"{heading}: {'; '.join(facts[heading])}\n")
    if "site" in facts:
        target.write(f"site: {facts['site']}\n")


def _build_answer(plans: list["Plan"], show: str, here: "SiteInUse | None") -> "Result":
    from htk.answers.output.result import Result
    from htk.planning.plan import table as of_plans

    label, rows = {
        "steps": (of_plans.LABEL, of_plans.plan_table),
        "parts": (of_plans.PARTS_LABEL, of_plans.parts_table),
        "ledger": (of_plans.LEDGER_LABEL, of_plans.ledger_table),
        "stages": (of_plans.STAGES_LABEL, of_plans.stages_table),
    }[show]
    return Result(label, rows(plans), facts_of(plans, here))


def facts_of(plans: list["Plan"], here: "SiteInUse | None" = None) -> Fields:
    """Return what a plan rests on, beside its table."""
    from htk.planning.plan.table import MFU, ledger_table

    job = plans[0].job
    certainty = plans[0].certainty
    model = job.model
    named = f"{model.name}, {model.parameters / 1e9:.2f} billion parameters"
    if model.active_parameters != model.parameters:
        named += f", {model.active_parameters / 1e9:.2f} active"
    return {
        "model": named,
        "cluster": f"{job.nodes} × {job.gpus_per_node} {job.gpu.device_name}",
        "feed_forward": "gated" if model.gated else "not gated (--gated, if it is)",
        "mfu": MFU,
        "sigma": round(certainty.sigma, 4),
        "checked": list(certainty.checked),
        "unchecked": list(certainty.unchecked),
        "ledger": ledger_table(plans).to_pylist(),
        **({} if here is None else {"site": str(here.path)}),
    }


def _print_plans(answer: "Result", plans: list["Plan"], show: str, limit: int, target: Any) -> None:
    """Print the plans for people: few columns, in units that read well."""
    from htk.answers.output.render import print_table

    facts = answer.coverage
    target.write(f"{facts['model']}, on {facts['cluster']}\n\n")
    if show != "steps":
        print_table(answer, limit=limit, file=target)
        return
    print_rows(answer.analysis, answer.to_pylist(), _COLUMNS, limit, target)
    sent = min(plans, key=lambda p: (p.p_oom > 0.5, p.step_ns))
    _print_ledger(sent, target)
    target.write(f"\n{facts['mfu']}\n")
    _print_checked(facts, target)


def _print_ledger(sent: "Plan", target: Any) -> None:
    """Print what a rank hands to each collective and sends, in GiB."""
    target.write(f"\nA rank's communication in a step of {sent.job.strategy}, in GiB:\n")
    for t in sent.transfers:
        target.write(
            f"  {t.phase:8} {t.kind:8} {t.collective} of {t.ranks}: {t.input_bytes / 2**30:,.2f}"
            f" handed in, {t.wire_bytes / 2**30:,.2f} sent, {format_duration(t.duration_ns)}\n"
        )
    if not sent.transfers:
        target.write("  none\n")


def _build_part_cell(name: str) -> Cell:
    return lambda row: format_duration(row[name]) if row[name] else NONE


_SEARCHED: dict[str, Cell] = {
    "layout": cell_of("layout", str),
    "": lambda row: "*" if row["on_front"] else " ",
    "step time": cell_of("step_time_ns", format_duration),
    "90 % interval": interval_of("step_time_ns"),
    "behind": cell_of("behind_best_pct", lambda share: f"{share:.1f} %"),
    "MFU %": cell_of("mfu_pct", "{:.1f}".format),
    "tokens/s/GPU": cell_of("tokens_per_s_per_gpu", "{:,.0f}".format),
    "peak memory": cell_of("peak_memory_bytes", format_bytes),
    "P(OOM) %": cell_of("p_oom", lambda share: f"{100 * share:.0f}"),
    "exposed comm": _build_part_cell("exposed_comm_ns"),
    "bubble": _build_part_cell("bubble_ns"),
    "per M tokens": cell_of("cost_per_million_tokens", "{:.3g}".format),
    "J/token": cell_of("energy_j_per_token", "{:.3g}".format),
    "run days": cell_of("run_days", "{:,.1f}".format),
}
_COLUMNS: dict[str, Cell] = {
    "strategy": cell_of("strategy", str),
    "step time": cell_of("step_time_ns", format_duration),
    "90 % interval": interval_of("step_time_ns"),
    "tokens/s": cell_of("tokens_per_s", "{:,.0f}".format),
    "MFU %": cell_of("mfu_pct", "{:.1f}".format),
    "peak memory": cell_of("peak_memory_bytes", format_bytes),
    "P(OOM) %": cell_of("p_oom", lambda share: f"{100 * share:.0f}"),
    "least GPUs": cell_of("least_gpus", "{:,}".format),
    "with checkpointing": cell_of("least_gpus_checkpointed", "{:,}".format),
    "per M tokens": cell_of("cost_per_million_tokens", "{:.3g}".format),
    "run days": cell_of("run_days", "{:,.1f}".format),
    "run cost": cell_of("run_cost", "{:,.0f}".format),
    "compute": cell_of("compute_ns", format_duration),
    "exposed comm": _build_part_cell("exposed_comm_ns"),
    "bubble": _build_part_cell("bubble_ns"),
    "optimizer": _build_part_cell("optimizer_ns"),
    "J/token": cell_of("energy_j_per_token", "{:.3g}".format),
    "sent": cell_of("wire_bytes", format_bytes),
    "tokens/s/GPU": cell_of("tokens_per_s_per_gpu", "{:,.0f}".format),
}
