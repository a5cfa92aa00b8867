"""Identities between analyses: figures that several answers give, and that must agree."""

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from htk.base.mappings import Fields
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.spans import intersect_intervals, merge_intervals
from htk.verdicts.verify.subject import (
    Rows,
    Subject,
    add_rows,
    key_rows,
    list_columns,
    rows_of,
    sum_column,
)
from htk.verdicts.verify.tally import NotApplicable, Tally

_MOST_RANGES = 12
_PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns", "idle_ns")
_SUMS = ("total_ns", "busy_ns", *_PARTS, "comm_ns", "memory_ns")
_DEVICE = ("rank", "device")
_WINDOW = (*_DEVICE, "cycle", "step")


def checks() -> list[Check]:
    """Return the checks that compare answers with one another."""
    return [
        Check(
            "window",
            "busy + idle = window, in time-breakdown, kernel-kinds and idle-breakdown",
            _check_windows,
        ),
        Check(
            "steps fill the window", "time-breakdown per step, added up, = per rank", _check_steps
        ),
        Check(
            "communication",
            "exposed + hidden = communication, in time-breakdown, comm-compute-overlap, by group",
            _check_communication,
        ),
        Check(
            "kernel time",
            "operators + outside = kernels, in kernel-top, kernel-families, op-breakdown, op-tree, "
            "module-breakdown, phase-breakdown, roofline, compile-graph-coverage",
            _kernel_time,
        ),
        Check(
            "halves",
            "the recording cut in two at its middle: both halves together = the whole",
            _check_halves,
        ),
        Check(
            "launched",
            "launch-stats by call, by kernel and by operator launch the same",
            _check_launched,
        ),
        Check(
            "ranges agree",
            "annotation-breakdown = kernel-top --annotation = phase-breakdown --annotation",
            _check_ranges,
        ),
        Check(
            "waits",
            "wait + transfer + undetermined = duration, in every table of collectives",
            _check_waits,
        ),
    ]


def _list_splits(subject: Subject) -> tuple[str, ...]:
    """Return what answers can be split by: ranks, and steps where any were recorded."""
    return ("rank", "step") if subject.trace.has_steps else ("rank",)


def _check_windows(subject: Subject, tally: Tally) -> None:
    for per in _list_splits(subject):
        table = subject.answer("time_breakdown", per=per)
        idle = subject.answer_or_none("idle_breakdown", per=per)
        kinds = subject.answer_or_none("kernel_kinds", per=per)
        causes = {} if idle is None else key_rows(idle, _WINDOW, ["idle_ns"])
        alone = {} if kinds is None else key_rows(kinds, _WINDOW, ["total_ns"])
        for key, row in key_rows(table, _WINDOW, _SUMS).items():
            label = f"per {per}, {_name_key(key)}"
            tally.equal(f"{label}, busy + idle", row["busy_ns"] + row["idle_ns"], row["total_ns"])
            parts = sum(row[name] or 0 for name in _PARTS)
            if row["exposed_comm_ns"] is not None:
                tally.equal(f"{label}, compute + exposed + idle", parts, row["total_ns"])
            if idle is not None:
                answered = causes.get(key, {"idle_ns": 0})["idle_ns"]
                tally.equal(f"{label}, idle-breakdown", answered, row["idle_ns"])
            if kinds is not None:
                answered = alone.get(key, {"total_ns": 0})["total_ns"]
                tally.equal(f"{label}, kernel-kinds", answered, row["busy_ns"])


def _check_steps(subject: Subject, tally: Tally) -> None:
    steps = subject.answer("time_breakdown", per="step")
    if not steps.num_rows:
        raise NotApplicable("no steps were recorded")
    per_rank = key_rows(subject.answer("time_breakdown"), _DEVICE, _SUMS)
    parts = key_rows(steps, _DEVICE, _SUMS)
    stepless = _list_cycles(subject, "rank_windows") - _list_cycles(subject, "step_windows")
    if stepless:
        tally.left_out.append("ranks of which some recording has no steps")
    parts = {key: row for key, row in parts.items() if all(key != c[:2] for c in stepless)}
    tally.rows("time-breakdown per step", parts, {key: per_rank[key] for key in parts})
    periods = key_rows(subject.answer("step_times"), _WINDOW, ["gpu_period_ns"])
    for key, row in key_rows(steps, _WINDOW, ["total_ns"]).items():
        if key[3] is not None:
            period = periods.get(key, {"gpu_period_ns": None})["gpu_period_ns"]
            tally.equal(f"step-times, {_name_key(key)}", period, row["total_ns"])


def _list_cycles(subject: Subject, windows: str) -> set[tuple[Any, ...]]:
    """Return rank, device and cycle of each recording that has such windows."""
    return set(zip(*list_columns(subject.trace.tables[windows], *_DEVICE, "cycle"), strict=True))


def _check_communication(subject: Subject, tally: Tally) -> None:
    names = ("comm_ns", "exposed_comm_ns")
    for per in _list_splits(subject):
        table = subject.answer("time_breakdown", per=per)
        times = key_rows(table, _WINDOW, names)
        overlap = subject.answer("comm_compute_overlap", per=per)
        for key, row in key_rows(overlap, _WINDOW, [*names, "overlap_ns"]).items():
            label = f"per {per}, {_name_key(key)}"
            if row["exposed_comm_ns"] is not None:
                both = row["overlap_ns"] + row["exposed_comm_ns"]
                tally.equal(f"{label}, exposed + hidden", both, row["comm_ns"])
            tally.equal(f"{label}, exposed", row["exposed_comm_ns"], times[key]["exposed_comm_ns"])
            tally.equal(f"{label}, communication", row["comm_ns"], times[key]["comm_ns"])
        for by in ("group", "collective"):
            rows = key_rows(subject.answer("comm_compute_overlap", per=per, by=by), _WINDOW, names)
            for key, row in times.items():
                if row["comm_ns"]:
                    shares = rows.get(key, dict.fromkeys(names, 0))
                    tally.rows(f"per {per}, by {by}", {key: shares}, {key: row})
    _communication_by_rank(subject, tally)


def _communication_by_rank(subject: Subject, tally: Tally) -> None:
    """Compare the shared time of collectives with all communication.

    Analyses of collectives share the time of those that run at once, so that they add up.
    """
    times = key_rows(subject.answer("time_breakdown"), ["rank"], ["comm_ns", "exposed_comm_ns"])
    times = {key: row for key, row in times.items() if row["comm_ns"]}
    by_group = subject.answer_or_none("comm_overlap_by_group")
    if not times or by_group is None:
        return
    names = ("shared_ns", "exposed_ns")
    rows = key_rows(by_group, ["rank"], names)
    for key, row in times.items():
        shares = rows.get(key, dict.fromkeys(names, 0))
        label = f"comm-overlap-by-group, {_name_key(key)}"
        tally.equal(f"{label}, communication", shares["shared_ns"], row["comm_ns"])
        tally.equal(f"{label}, exposed", shares["exposed_ns"], row["exposed_comm_ns"])
    for by in ("size", "group", "type"):
        summary = subject.answer("comm_summary", by=by)
        comm = sum(row["comm_ns"] for row in times.values())
        exposed = sum(row["exposed_comm_ns"] or 0 for row in times.values())
        tally.equal(f"comm-summary by {by}", sum_column(summary, "shared_ns"), comm)
        tally.equal(f"comm-summary by {by}, exposed", sum_column(summary, "exposed_ns"), exposed)


def _kernel_time(subject: Subject, tally: Tally) -> None:
    kernels = subject.answer("kernel_top", n=0)
    device_ns = sum_column(kernels, "total_ns")
    count = sum_column(kernels, "count")
    for label, table, names in _list_time_answers(subject):
        tally.equal(f"{label} against kernel-top", sum_column(table, names[0]), device_ns)
        if len(names) > 1:
            tally.equal(f"{label} against kernel-top, count", sum_column(table, names[1]), count)
    operators = subject.answer_or_none("op_breakdown", n=0)
    if operators is not None:
        linked_ns = sum(
            own or 0  # null: no GPU work of its rank is linked
            for own, calls in zip(*list_columns(operators, "device_self_ns", "count"), strict=True)
            if calls is not None
        )
        tree = subject.answer("op_tree", min_pct=0)
        tally.equal("op-tree and op-breakdown", sum_column(tree, "device_self_ns"), linked_ns)
        roofline = subject.answer_or_none("roofline", n=0)
        calls = subject.trace.tables["launches"]["name"].unique().to_pylist()
        graphs = any("GraphLaunch" in name for name in calls if name)
        if roofline is not None and not graphs:  # captures tell more operators of those
            tally.equal("roofline and op-breakdown", sum_column(roofline, "device_ns"), linked_ns)


def _list_time_answers(subject: Subject) -> Iterator[tuple[str, pa.Table, tuple[str, ...]]]:
    """Yield each answer that covers all GPU time, its columns of time and, if any, of count."""
    totals = ("total_ns", "count")
    pers = _list_splits(subject)
    choices: list[Fields] = [{"n": 3}, *({"n": 0, "per": per} for per in pers)]
    for options in choices:
        shown = " ".join(f"--{name} {value}" for name, value in options.items())
        yield f"kernel-top {shown}", subject.answer("kernel_top", **options), totals
    for per in ("all", *pers):
        yield f"kernel-families {per}", subject.answer("kernel_families", per=per), totals
    modules = subject.answer_or_none("module_breakdown", n=0)
    if modules is not None:
        yield "module-breakdown", modules, ("device_self_ns",)
    how = subject.answer_or_none("compile_graph_coverage")
    if how is not None:
        yield "compile-graph-coverage", how, ("device_ns", "kernels")
    for by in ("name", "shape", "thread"):
        table = subject.answer_or_none("op_breakdown", n=0, by=by)
        if table is not None:
            yield f"op-breakdown by {by}", table, ("device_self_ns",)
    for per in pers:
        table = subject.answer_or_none("op_breakdown", n=0, per=per)
        if table is not None:
            yield f"op-breakdown per {per}", table, ("device_self_ns",)
        table = subject.answer_or_none("phase_breakdown", per=per)
        if table is not None:
            yield f"phase-breakdown per {per}", table, ("device_ns", "kernels")


def _check_halves(subject: Subject, tally: Tally) -> None:
    """Compare what selections of the time before and after an instant hold with the whole."""
    starts, ends = list_columns(subject.trace.tables["rank_windows"], "start_ns", "end_ns")
    if not starts:
        raise NotApplicable("needs GPU activities")
    middle = (min(starts) + max(ends)) // 2 - subject.trace.origin_ns
    if middle <= 0:
        raise NotApplicable("no time between the first event and the middle of the GPU's work")
    halves = subject.trace.sel(to_ns=middle), subject.trace.sel(from_ns=middle)
    for analysis, keys, values, options in (
        ("time_breakdown", _DEVICE, _SUMS, {}),
        ("kernel_top", ("rank", "name"), ("count", "total_ns"), {"n": 0, "per": "rank"}),
        ("phase_breakdown", ("rank",), ("kernels", "device_ns"), {}),
    ):
        sums: Rows = {}
        for half in halves:
            add_rows(sums, rows_of(half, analysis, keys, values, **options))
        for key, row in rows_of(subject.trace, analysis, keys, values, **options).items():
            both = sums.get(key, dict.fromkeys(values, 0))
            tally.rows(f"{analysis}, halves", {key: both}, {key: row})
    for half, name in zip(halves, ("first", "second"), strict=True):
        kernels = rows_of(half, "kernel_top", (), ("total_ns",), n=0).get((), {"total_ns": 0})
        operators = rows_of(half, "op_breakdown", (), ("device_self_ns",), n=0)
        for row in operators.values():
            label = f"op-breakdown against kernel-top, {name} half"
            tally.equal(label, row["device_self_ns"], kernels["total_ns"])


def _check_launched(subject: Subject, tally: Tally) -> None:
    names = ("kernels", "device_ns", "call_ns", "delay_ns")
    by_call = subject.answer("launch_stats", n=0)
    expected = key_rows(by_call, ["rank"], names)
    for by in ("kernel", "operator"):
        rows = key_rows(subject.answer("launch_stats", n=0, by=by), ["rank"], names)
        tally.rows(f"launch-stats by {by}", rows, expected)


def _check_ranges(subject: Subject, tally: Tally) -> None:
    table = subject.answer("annotation_breakdown")
    if not subject.trace.tables["kernels"].num_rows:
        raise NotApplicable("no GPU activity was recorded")
    rows = key_rows(table, ["rank", "name"], ["kernels", "device_ns", "count"])
    cost: dict[str, int] = {}
    for (_, name), row in rows.items():
        if row["count"]:
            cost[name] = cost.get(name, 0) + row["device_ns"]
    chosen = sorted(cost, key=lambda name: -cost[name])
    for name in chosen[:_MOST_RANGES]:
        _check_range(subject, tally, name, {key[0]: rows[key] for key in rows if key[1] == name})
    if len(chosen) > _MOST_RANGES:
        tally.left_out.append(f"{len(chosen) - _MOST_RANGES} ranges with less GPU time")


def _check_range(subject: Subject, tally: Tally, name: str, answered: dict[int, Fields]) -> None:
    """Compare a range's GPU work with what the selection of that range holds."""
    pattern = r"^ProfilerStep#\d+" if name == "ProfilerStep" else f"^{re.escape(name)}$"
    selected = subject.trace.sel(annotation=pattern)
    kernels = rows_of(selected, "kernel_top", ("rank",), ("total_ns", "count"), n=0, per="rank")
    columns = ("device_ns", "kernels")
    phases = rows_of(selected, "phase_breakdown", ("rank", "phase"), columns)
    phase = None if _autograd_was_recorded(subject) else _named_phase(subject, name)
    for rank, row in answered.items():
        label = f"in {name!r}, rank {rank}"
        top = kernels.get((rank,), {"total_ns": 0, "count": 0})
        tally.equal(
            f"kernel-top and annotation-breakdown {label}", top["total_ns"], row["device_ns"]
        )
        tally.equal(
            f"kernel-top and annotation-breakdown {label}, kernels", top["count"], row["kernels"]
        )
        for column, value in (("device_ns", row["device_ns"]), ("kernels", row["kernels"])):
            # All of it is of the phase that the range names, where it names one and autograd, which
            # knows better, was not recorded; the phases together are all of it in any case.
            shares = [
                share[column]
                for key, share in phases.items()
                if key[0] == rank and phase in (None, key[1])
            ]
            tally.equal(
                f"phase-breakdown and annotation-breakdown {label}, {column}",
                sum(shares),
                value,
            )


def _autograd_was_recorded(subject: Subject) -> bool:
    """Return whether operators tell by themselves that they are of the backward pass."""
    ops = subject.trace.tables["cpu_ops"]
    if ops["sequence"].null_count < ops.num_rows:
        return True
    return any(name.startswith("autograd::") for name in ops["name"].unique().to_pylist() if name)


_PHASES = ("dataloader", "forward", "backward", "optimizer")
_MAY_NAME_A_PHASE = re.compile(r"data_?load|_batch|optim|zero_grad|backward|bwd|forward|fwd", re.I)


def _named_phase(subject: Subject, name: str) -> str | None:
    """Return the phase that a range names, where no range inside it may name another one."""
    words = [phase for phase in _PHASES if phase in name.lower()]
    if len(words) != 1 or len(_MAY_NAME_A_PHASE.findall(name)) != 1:
        return None
    host = subject.host_ranges
    stepping = {(r["rank"], r["process"], r["thread"]) for r in host if r["step"] is not None}
    spans = [r for r in host if r["name"] == name]
    if stepping and not {(r["rank"], r["process"], r["thread"]) for r in spans} <= stepping:
        return None
    others = [r for r in host if _MAY_NAME_A_PHASE.search(r["name"]) and r["name"] != name]
    for rank in {r["rank"] for r in spans}:
        outer = merge_intervals((r["start_ns"], r["end_ns"]) for r in spans if r["rank"] == rank)
        inner = merge_intervals((r["start_ns"], r["end_ns"]) for r in others if r["rank"] == rank)
        if intersect_intervals(outer, inner):
            return None
    return words[0]


def _check_waits(subject: Subject, tally: Tally) -> None:
    table = subject.answer("collective_times")
    names = ("source", "start_ns", "end_ns", "wait_ns", "transfer_ns", "undetermined_ns")
    waits = transfers = 0
    sources = set()
    for row, (source, start, end, wait, transfer, rest) in enumerate(
        zip(*list_columns(table, *names), strict=True)
    ):
        sources.add(source)
        if wait is not None and transfer is not None:
            waits = waits + wait
            transfers = transfers + transfer
            rest = rest or 0
            tally.equal(f"collective-times, row {row}", wait + transfer + rest, end - start)
            tally.equal(f"collective-times, row {row}, sign", min(wait, transfer, rest, 0), 0)
    if len(sources) > 1:
        tally.left_out.append("sums over collectives, which several sources recorded")
        return
    for name, options in (("comm_wait", {}), ("comm_summary", {"by": "type"})):
        sums = subject.answer(name, **options)
        tally.equal(f"wait of {name} and collective-times", sum_column(sums, "wait_ns"), waits)
        tally.equal(
            f"transfer of {name} and collective-times", sum_column(sums, "transfer_ns"), transfers
        )
    late = subject.answer_or_none("late_arrivals", n=0)
    if late is not None:
        tally.equal("late-arrivals and collective-times", sum_column(late, "wait_total_ns"), waits)
        _check_blame(subject, tally, late)
    calls = sum_column(subject.answer("comm_summary", by="type"), "count")
    tally.equal("calls of comm-summary and collective-times", calls, table.num_rows)


def _check_blame(subject: Subject, tally: Tally, late: pa.Table) -> None:
    """Compare whom waits are attributed to, and how many there are and at what cost."""
    stragglers = subject.answer_or_none("stragglers")
    if stragglers is None:
        return
    # Lateness is not among them: stragglers limits it to a rank's excess in all.
    names = ("cost_to_others_ns", "times_blamed", "wait_ns")
    costs = key_rows(stragglers, ["rank"], names)
    by_rank = key_rows(subject.answer("comm_wait"), ["rank"], names)
    tally.rows("comm-wait and stragglers", {key: by_rank[key] for key in costs}, costs)
    (blamed,) = list_columns(late, "blamed_rank")
    for (rank,), row in costs.items():
        label = f"late-arrivals and stragglers, blamed on rank {rank}"
        tally.equal(label, blamed.count(rank), row["times_blamed"])


def _name_key(key: tuple[object, ...]) -> str:
    names = ("rank", "device", "cycle", "step")
    return " ".join(f"{n} {v}" for n, v in zip(names, key, strict=False) if v is not None)
