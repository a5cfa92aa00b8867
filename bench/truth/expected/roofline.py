"""How near products come to what their GPU can do."""

import json

from bench.truth.expected.sums import Row, Rows, group, percent
from bench.truth.expected.work import PEAK_TFLOPS, WRONG, bearers_of, bytes_of, flops_of
from bench.truth.made import COPIES
from bench.truth.model import Activity, Recording, Span

_MEMORY_GBPS = 2000  # of an A100 with 80 GB
_LAUNCH_NS = 2000
_WITHOUT = dict.fromkeys(
    ("flops_per_call", "bytes_per_call", "achieved_tflops", "achieved_tbps", "flops_per_byte")
)
_WITHOUT_LIMITS = dict.fromkeys(("bound", "roofline_ns", "roofline_pct", "beyond_roofline_ns"))
# By counters, of which these recordings have none.
_SAMPLED = dict.fromkeys(("sm_active_pct", "memory_busy_pct"))
# Names for which there is a model, if only their shapes were recorded.
_MODELLED = ("aten::add", "aten::mm", "aten::relu", "aten::copy_", "aten::linear")
_CROSSING = "copy between host and GPU: no roofline of the GPU's memory"


def roofline(recording: Recording, per: str) -> Rows:
    if not recording.operators or (per == "step" and not recording.steps):
        return {}  # refused
    all_time = sum(a.length for a in recording.activities)
    answering = {a: a.operator for a in recording.activities if a.operator is not None}
    answering |= bearers_of(recording)
    first = {op: a for a, op in reversed(answering.items())}

    def key(activity: Activity) -> tuple[object, ...]:
        op = answering[activity]
        step = activity.step if per == "step" else None
        return None if per == "all" else 0, step, op.name, _shapes(op)

    rows: Rows = {}
    for who, alike in group(answering, key).items():
        calls = sum(key(activity) == who for activity in first.values())
        device_ns = sum(a.length for a in alike)
        rows[who] = {
            **{"count": calls, "kernels": len(alike), "device_ns": device_ns},
            "device_time_pct": percent(device_ns, all_time),
            **_SAMPLED,
            **_of_a_call(answering[alike[0]], alike, calls, device_ns),
        }
    return rows


def _shapes(op: Span) -> str | None:
    if "shapes" not in op.facts:
        return None
    rows, inner, columns = op.facts["shapes"]
    return json.dumps([[rows, inner], [inner, columns]], separators=(",", ":"))


def _of_a_call(op: Span, activities: list[Activity], calls: int, device_ns: int) -> Row:
    if "shapes" not in op.facts:
        why = "no shapes recorded" if op.name in _MODELLED else "no model"
        return {**_WITHOUT, **_WITHOUT_LIMITS, "types": None, "family": None, "note": why}
    types: Row = {"types": '["float","float"]'}
    flops, moved = flops_of(op), bytes_of(op)
    crosses = any(COPIES.get(a.name, ("",))[0] in ("HtoD", "DtoH") for a in activities)
    compute, memory = flops / PEAK_TFLOPS / 1e3, moved / _MEMORY_GBPS
    if not crosses and compute * calls > device_ns:
        return {**types, **_WITHOUT, **_WITHOUT_LIMITS, "family": None, "note": WRONG}
    row: Row = {
        **{"family": "gemm", "flops_per_call": flops, "bytes_per_call": moved},
        "achieved_tflops": flops * calls / device_ns / 1e3 if device_ns else None,
        "achieved_tbps": moved * calls / device_ns / 1e3 if device_ns else None,
        "flops_per_byte": flops / moved,
    }
    if crosses:
        return {**types, **row, **_WITHOUT_LIMITS, "note": _CROSSING}
    best = max(compute, memory)
    bound = "compute" if compute > memory else "memory"
    return {
        **{**types, **row, "note": None, "roofline_ns": best},
        "bound": "launch" if best * calls / len(activities) < _LAUNCH_NS else bound,
        "roofline_pct": percent(best * calls, device_ns),
        "beyond_roofline_ns": max(device_ns - best * calls, 0),
    }
