"""Answers about operators, Python, modules, ranges and launches."""

import itertools
import re
from collections.abc import Callable, Iterable

from bench.truth.expected.sums import Row, Rows, group, length_of, percent, quantile, union
from bench.truth.model import Activity, Recording, Span

MODULE = "nn.Module: "
_ADDRESS = re.compile(r" at 0x[0-9a-f]+\b")


def _launched_in(activity: Activity, operator: Span) -> bool:
    innermost = activity.operator
    return innermost is not None and operator in innermost.itself_and_callers()


def _outermost(span: Span, name: Callable[[Span], str] = lambda span: span.name) -> bool:
    return all(name(caller) != name(span) for caller in span.callers())


def _self_times(spans: Iterable[Span]) -> dict[Span, int]:
    own = {span: span.length for span in spans}
    for span in own:
        if span.caller is not None:
            own[span.caller] -= span.length
    return own


def op_breakdown(recording: Recording, per: str) -> Rows:
    if not recording.operators or (per == "step" and not recording.steps):
        return {}  # refused
    all_time = sum(a.length for a in recording.activities)
    own_time = _self_times(recording.operators)
    by_operator = group(recording.activities, lambda a: a.operator)
    below = _all_below(recording.operators)
    rows: Rows = {}
    for (step, name), alike in group(recording.operators, _pool(per)).items():
        row: Row = dict.fromkeys(_SUMS, 0)
        for operator in alike:
            own = by_operator.get(operator, [])
            row["count"] += 1
            row["cpu_self_ns"] += own_time[operator]
            row["device_self_ns"] += sum(a.length for a in own)
            row["launching_calls"] += bool(own)
            if not any((s.step == step or per != "step") and s.name == name
                       for s in operator.callers()):  # fmt: skip
                inside = [a for s in below[operator] for a in by_operator.get(s, [])]
                row["cpu_total_ns"] += operator.length
                row["device_total_ns"] += sum(a.length for a in inside)
                row["kernels"] += len(inside)
                row["backward_device_ns"] += sum(
                    a.length
                    for a in recording.activities
                    if a.operator is not None and a.operator.forward in below[operator]
                )
        row["device_time_pct"] = percent(row["device_self_ns"], all_time)
        row["kernels_per_call"] = row["kernels"] / row["count"]
        rows[(*_who(per, step), name)] = row
    rest = [a for a in recording.activities if a.operator is None]
    for (step, why), alike in group(rest, lambda a: (_step(a, per), _why(a))).items():
        total = sum(a.length for a in alike)
        rows[(*_who(per, step), why)] = {
            **dict.fromkeys(("cpu_total_ns", "cpu_self_ns", "backward_device_ns")),
            **{"kernels_per_call": None, "launching_calls": None},
            **{"count": None, "device_total_ns": total, "device_self_ns": total},
            **{"kernels": len(alike), "device_time_pct": percent(total, all_time)},
        }
    return rows


_SUMS = (
    *("count", "cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns"),
    *("backward_device_ns", "kernels", "launching_calls"),
)


def _who(per: str, step: int | None) -> tuple[int | None, int | None]:
    return (None if per == "all" else 0, step)


def _step(item: Span | Activity, per: str) -> int | None:
    return item.step if per == "step" else None


def _pool(per: str) -> Callable[[Span], tuple[int | None, str]]:
    return lambda span: (_step(span, per), span.name)


def _all_below(spans: Iterable[Span]) -> dict[Span, set[Span]]:
    """Return each span with all that it called, at any depth."""
    below: dict[Span, set[Span]] = {span: set() for span in spans}
    for span in below:
        for above in span.itself_and_callers():
            below[above].add(span)
    return below


def _why(activity: Activity) -> str:
    if activity.carried_in:
        return "(launched before the recording)"
    if activity.call is None:
        return "(not linked)"
    if activity.in_graph:
        return "(graph launched outside operators)"
    return "(launched outside operators)"


def op_tree(recording: Recording) -> Rows:
    all_time = sum(a.length for a in recording.activities)
    own_time = _self_times(recording.operators)
    rows: Rows = {}
    paths = {span: _path(span) for span in recording.operators}
    for path, alike in group(recording.operators, lambda span: paths[span]).items():
        own = [a for a in recording.activities if a.operator in alike]
        inside = [
            a
            for a in recording.activities
            if a.operator is not None and any(s in alike for s in a.operator.itself_and_callers())
        ]
        total = sum(a.length for a in inside)
        rows[(" > ".join(path),)] = {
            **{"op": path[-1], "depth": len(path) - 1, "count": len(alike), "rank": None},
            "parent": " > ".join(path[:-1]) or None,
            "cpu_total_ns": sum(s.length for s in alike),
            "cpu_self_ns": sum(own_time[s] for s in alike),
            "device_total_ns": total,
            "device_self_ns": sum(a.length for a in own),
            "device_time_pct": percent(total, all_time),
            "kernels": len(inside),
            "callees": len({s.name for s in paths if s.caller in alike}),
        }
    return rows


def _path(span: Span) -> tuple[str, ...]:
    return tuple(s.name for s in reversed([*span.itself_and_callers()]))


def _function(span: Span) -> str:
    return _ADDRESS.sub("", span.name)


def python_hotspots(recording: Recording) -> Rows:
    """GPU work belongs to every Python call that was open round its launch, on its thread."""
    own_time = _self_times(recording.python)
    inner = {
        op for op in recording.operators
        if op.python is None or (op.caller is not None and op.caller.python is op.python)
    }  # fmt: skip
    operators = {call: 0 for call in recording.python}
    for op in recording.operators:
        if op not in inner and op.python is not None:
            python = [c for c in recording.python if c.caller is op.python and _in(c, op)]
            operators[op.python] += op.length - sum(c.length for c in python)
    everything = sum(own_time[c] - operators[c] for c in recording.python)
    rows: Rows = {}
    for name, alike in group(recording.python, _function).items():
        row: Row = dict.fromkeys(_PYTHON, 0)
        for call in alike:
            row["count"] += 1
            row["self_ns"] += own_time[call]
            row["operators_ns"] += operators[call]
            row["python_ns"] += own_time[call] - operators[call]
            own = [a for a in recording.activities if a.python is call]
            row["device_self_ns"] += sum(a.length for a in own)
            if _outermost(call, _function):
                row["total_ns"] += call.length
                row["device_total_ns"] += sum(
                    a.length
                    for a in recording.activities
                    if a.python is not None and call in a.python.itself_and_callers()
                )
        row["python_time_pct"] = percent(row["python_ns"], everything)
        rows[(name,)] = row
    return rows


_PYTHON = (
    *("count", "total_ns", "self_ns", "python_ns", "operators_ns"),
    *("device_self_ns", "device_total_ns"),
)


def _in(call: Span, operator: Span) -> bool:
    """Return whether a Python call was made inside of an operator."""
    innermost = call.operator
    return innermost is not None and operator in innermost.itself_and_callers()


def _module(python: Span | None) -> str | None:
    names = [] if python is None else [s.name for s in python.itself_and_callers()]
    own = [name.removeprefix(MODULE) for name in reversed(names) if name.startswith(MODULE)]
    return ".".join(own) or None


def _module_of_operator(operator: Span | None) -> str | None:
    if operator is None:
        return None
    return _module(operator.python) or (
        _module(operator.forward.python) if operator.forward is not None else None
    )


def module_breakdown(recording: Recording) -> Rows:
    """GPU work belongs to the module whose call was open round its launch, else to that of its
    operator."""
    all_time = sum(a.length for a in recording.activities)
    own_time = _self_times(recording.operators)
    if not recording.operators:
        return {}  # refused
    of_activity = {
        a: _module(a.python) or _module_of_operator(a.operator) for a in recording.activities
    }
    of_operator = {op: _module_of_operator(op) for op in recording.operators}
    modules = {m for m in (*of_activity.values(), *of_operator.values()) if m}
    modules |= {m.rsplit(".", k)[0] for m in modules for k in range(m.count(".") + 1)}
    rows: Rows = {}
    for module in (*modules, None) if modules else ():

        def inside(module_of_it: str | None, module: str | None = module) -> bool:
            if module is None or module_of_it is None:
                return module_of_it == module
            return module_of_it == module or module_of_it.startswith(f"{module}.")

        calls = [c for c in recording.python if c.name.startswith(MODULE) and _module(c) == module]
        launched = [a for a, module_of_it in of_activity.items() if inside(module_of_it)]
        own = [a for a, module_of_it in of_activity.items() if module_of_it == module]
        operators = [op for op, module_of_it in of_operator.items() if inside(module_of_it)]
        if module is None and not operators and not own:
            continue
        backward = [a for a in launched if a.operator and a.operator.forward]
        rows[(module,)] = {
            "depth": None if module is None else module.count("."),
            "count": len(calls) or None,
            "cpu_total_ns": sum(c.length for c in calls) if calls else None,
            "operators": sum(op.caller is None for op in operators),
            "operators_cpu_ns": sum(own_time[op] for op in operators),
            "device_total_ns": sum(a.length for a in launched),
            "device_self_ns": sum(a.length for a in own),
            "backward_device_ns": sum(a.length for a in backward),
            "device_time_pct": percent(sum(a.length for a in own), all_time),
            "kernels": len(launched),
        }
    return rows


def annotation_breakdown(recording: Recording) -> Rows:
    all_time = sum(a.length for a in recording.activities)
    spans = [*recording.ranges, *recording.steps]
    rows: Rows = {}
    for name, alike in group(spans, _range_name).items():
        steps = {int(s.name.partition("#")[2]) for s in alike if s.kind == "step"}
        inside = [
            a
            for a in recording.activities
            if a.step in steps or any(span in alike for span in a.ranges)
        ]
        lengths = [s.length for s in alike]
        device = sum(a.length for a in inside)
        rows[0, name] = {
            **{"count": len(alike), "cpu_total_ns": sum(lengths), "cpu_ns_max": max(lengths)},
            "cpu_ns_mean": sum(lengths) / len(lengths),
            **{"kernels": len(inside), "device_ns": device},
            "device_busy_ns": length_of(union((a.start, a.end) for a in inside)),
            "device_time_pct": percent(device, all_time),
            **{"gpu_ranges": 0, "gpu_ranges_ns": 0},
        }
    return rows


def _range_name(span: Span) -> str:
    return "ProfilerStep" if span.kind == "step" else span.name


def launch_stats(recording: Recording, by: str) -> Rows:
    """A graph's launch has a row of its own where rows are kernels: it is of no single one."""
    launched = group([a for a in recording.activities if a.call], lambda a: a.call)
    rows: Rows = {}
    for label, calls in group(launched, lambda call: _launcher(call, launched[call], by)).items():
        lengths = [call.length for call in calls]
        device = [sum(a.length for a in launched[call]) for call in calls]
        delays = [max(min(a.start for a in launched[c]) - c.end, 0) for c in calls]
        kernels = sum(len(launched[call]) for call in calls)
        shorter = zip(lengths, device, strict=True)
        rows[0, label] = {
            **{"count": len(calls), "kernels": kernels, "call_ns": sum(lengths)},
            "call_ns_mean": sum(lengths) / len(calls),
            "call_ns_p50": quantile(lengths, 0.5),
            "call_ns_p95": quantile(lengths, 0.95),
            **{"call_ns_max": max(lengths), "device_ns": sum(device)},
            "device_ns_mean": sum(device) / kernels,
            **{"delay_ns": sum(delays), "delay_ns_mean": sum(delays) / len(calls)},
            "delay_ns_p50": quantile(delays, 0.5),
            "delay_ns_p95": quantile(delays, 0.95),
            "delay_ns_max": max(delays),
            "shorter_than_call": sum(d < c <= 50_000 for c, d in shorter),
            "call_outliers": sum(c > 50_000 for c in lengths),
            "delay_outliers": sum(d > 100_000 for d in delays),
        }
    return rows


def _launcher(call: Span, launched: list[Activity], by: str) -> str | None:
    if by == "call":
        return call.name
    if by == "operator":
        return call.operator.name if call.operator else None
    first = min(launched, key=lambda a: a.start)
    many = len(launched)
    return f"({many} of one call, first {first.name})" if many > 1 else first.name


def short_kernels(recording: Recording, by: str) -> Rows:
    kernels = [a for a in recording.activities if a.sort == "kernel"]
    launched = group([a for a in recording.activities if a.call], lambda a: a.call)
    shares = {}
    for call, launched_by_it in launched.items():  # what a division leaves over goes to the first
        many = len(launched_by_it)
        for k, activity in enumerate(launched_by_it):
            shares[activity] = call.length // many + (k < call.length % many)
    idle = _idle_before(recording)
    all_time = sum(a.length for a in recording.activities)
    edges = [*range(0, 10_001, 1000), 100_000, 1_000_000, None]
    names = {}
    for activity in kernels:
        if by == "duration":
            last = max(e for e in edges if e is not None and e <= activity.length)
            names[activity] = last / 1000
        elif activity.length < 10_000:
            nobody = "[no operator]" if activity.call else "[launch not recorded]"
            named = activity.operator.name if activity.operator else nobody
            names[activity] = activity.name if by == "kernel" else named
    rows: Rows = {}
    for label, alike in group(names, lambda a: names[a]).items():
        total = sum(a.length for a in alike)
        rows[(label,)] = {
            **_bucket(edges, label if by == "duration" else None),
            "short": all(a.length < 10_000 for a in alike),
            **{"count": len(alike), "total_ns": total},
            "kernels_pct": percent(len(alike), len(kernels)),
            "kernel_time_pct": percent(total, all_time),
            "shorter_than_launch": sum(a.call is not None and a.length < shares[a] for a in alike)
            if recording.calls
            else None,
            "call_ns": sum(shares.get(a, 0) for a in alike) if recording.calls else None,
            "idle_before_ns": sum(idle.get(a, 0) for a in alike),
        }
    return rows


def _bucket(edges: list[int | None], begin_us: float | None) -> Row:
    if begin_us is None:
        return {"from_us": None, "to_us": None}
    end = edges[edges.index(int(1000 * begin_us)) + 1]
    if end is None:
        return {"label": f"from {begin_us:g} µs", "to_us": None}
    return {"label": f"{begin_us:g} to {end / 1000:g} µs", "to_us": end / 1000}


def _idle_before(recording: Recording) -> dict[Activity, int]:
    """Return the time before activities in which their device ran nothing.

    What takes no time ends no gap; of several that start when it ends the first has it.
    """
    idle: dict[Activity, int] = {}
    for own in group(recording.activities, lambda a: a.device).values():
        busy = union((a.start, a.end) for a in own if a.length)
        for (_, end), (start, _) in itertools.pairwise(busy):
            idle[next(a for a in own if a.start == start)] = start - end
    return idle


def kernel_sequences(recording: Recording) -> Rows:
    roots: dict[Span, list[Activity]] = {}
    for activity in recording.activities:
        if activity.operator is not None:
            root = [*activity.operator.itself_and_callers()][-1]
            roots.setdefault(root, []).append(activity)
    all_time = sum(a.length for a in recording.activities)
    sequences = {}
    for root, launched_by_it in roots.items():
        launched_by_it.sort(key=lambda a: (a.call.start if a.call else 0, a.start))
        if len(launched_by_it) >= 3:
            sequences[root] = (root.name, tuple(a.name for a in launched_by_it))
    rows: Rows = {}
    for (name, sequence), alike in group(sequences, lambda root: sequences[root]).items():
        device = sum(a.length for root in alike for a in roots[root])
        host = sum(root.length for root in alike)
        runs = [(kernel, len([*run])) for kernel, run in itertools.groupby(sequence[:40])]
        words = [kernel if many == 1 else f"{kernel} ×{many}" for kernel, many in runs]
        text = " → ".join(words) + (" → …" if len(sequence) > 40 else "")
        rows[name, text, len(sequence)] = {
            **{"count": len(alike), "device_ns": device, "cpu_ns": host},
            **{"device_ns_mean": device / len(alike), "cpu_ns_mean": host / len(alike)},
            "device_time_pct": percent(device, all_time),
        }
    return rows
