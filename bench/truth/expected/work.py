"""Answers about operations of products whose shapes were recorded."""

import json
from statistics import stdev

from bench.truth.expected.gpu import step_windows, windows_of
from bench.truth.expected.sums import Row, Rows, group, percent, quantile
from bench.truth.model import Activity, Recording, Span

PEAK_TFLOPS = 19.5  # of an A100 in fp32
WRONG = "above the GPU's compute peak: the operations counted, or the peak, cannot be right"
_OF_OTHERS = (  # attention and convolutions
    *("heads", "kv_heads", "query_length", "key_length", "head_size"),
    *("channels_in", "channels_out", "strides", "note"),
)
_OF_RATES = ("achieved_tflops", "achieved_tflops_min", "achieved_tflops_p50", "achieved_tflops_max")


def bearers_of(recording: Recording) -> dict[Activity, Span]:
    """Return the product that answers for each activity: the innermost operator round its launch;
    else the nearest caller that is one, if no other product inside of it launches anything."""
    launching = {a.operator for a in recording.activities} - {None}
    products = {op for op in recording.operators if "shapes" in op.facts}

    def alone(op: Span) -> bool:
        others = (launching & products) - {op}
        return not any(op in other.itself_and_callers() for other in others)

    bearers = {}
    for activity in recording.activities:
        if activity.operator in products:
            bearers[activity] = activity.operator
        elif activity.operator is not None:
            callers = (op for op in activity.operator.callers() if op in products)
            nearest = next((op for op in callers if alone(op)), None)
            if nearest is not None:
                bearers[activity] = nearest
    return bearers


def flops_of(product: Span) -> int:
    rows, inner, columns = product.facts["shapes"]
    return int(2 * rows * inner * columns)


def bytes_of(product: Span) -> int:
    rows, inner, columns = product.facts["shapes"]
    return int(4 * (rows * inner + inner * columns + rows * columns))


def matrix_calls(recording: Recording) -> Rows:
    bearers = bearers_of(recording)
    all_time = sum(a.length for a in recording.activities)
    answers: Rows = {}
    for shapes, alike in group(bearers, lambda a: bearers[a].facts["shapes"]).items():
        rows, inner, columns = shapes
        calls = group(alike, lambda a: bearers[a])
        lengths = [sum(a.length for a in own) for own in calls.values()]
        names = group(alike, lambda a: a.name)
        times = {name: sum(a.length for a in own) for name, own in names.items()}
        answers[(json.dumps([[rows, inner], [inner, columns]], separators=(",", ":")),)] = {
            **{**dict.fromkeys(_OF_OTHERS), "types": '["float","float"]'},
            **{"family": "gemm", "op": "aten::mm", "batch": 1, "count": len(calls)},
            **{"product_m": rows, "product_n": columns, "product_k": inner},
            **{"kernels": len(alike), "device_ns": sum(lengths)},
            "device_time_pct": percent(sum(lengths), all_time),
            "flops_per_call": 2 * rows * inner * columns,
            **_rates(2 * rows * inner * columns, lengths),
            **{"call_ns_min": min(lengths), "call_ns_max": max(lengths)},
            "call_ns_p50": quantile(lengths, 0.5),
            **({"kernel_names": _by_time(times)} if len({*times.values()}) == len(times) else {}),
        }
    return answers


def _by_time(times: dict[str, int]) -> str:
    return json.dumps(sorted(times, key=lambda name: -times[name])[:8])


def _rates(flops: int, lengths: list[int]) -> Row:
    """Return rates of calls; what is above the GPU's peak is empty, and where a call took no time
    those of single calls."""
    together = flops * len(lengths) / sum(lengths) / 1e3 if sum(lengths) else None
    rates = [flops / length / 1e3 for length in lengths] if all(lengths) else []
    of_calls = (min(rates), quantile(rates, 0.5), max(rates)) if rates else (None, None, None)
    both = zip(_OF_RATES, (together, *of_calls), strict=True)
    row: Row = {name: rate if (rate or 0) <= PEAK_TFLOPS else None for name, rate in both}
    is_beyond = any((rate or 0) > PEAK_TFLOPS for rate in (together, *of_calls))
    varies = len(rates) > 1 and max(rates) <= PEAK_TFLOPS
    spread = stdev(rates) if varies else None
    return {**row, "achieved_tflops_std": spread, "note": WRONG if is_beyond else None}


def flops(recording: Recording, per: str) -> Rows:
    """A step has what it launched; the time after the last one has none."""
    if not any("shapes" in op.facts for op in recording.operators):
        return {}  # refused
    bearers = bearers_of(recording)
    begun = {product: activity for activity, product in reversed([*bearers.items()])}
    answers: Rows = {}
    for device, step, begin, end in (windows_of if per == "rank" else step_windows)(recording):

        def inside(a: Activity, device: int = device, step: int | None = step) -> bool:
            return a.device == device and (per == "rank" or None is not a.step == step)

        own = [a for a in recording.activities if inside(a)]
        products = [product for product, activity in begun.items() if inside(activity)]
        work, device_ns = sum(map(flops_of, products)), sum(a.length for a in own)
        moved = sum(map(bytes_of, products))
        length = end - begin
        rate = work / length / 1e3 if length else None
        share = 100 * rate / PEAK_TFLOPS if rate else None
        shown = None if share is None or share > 100 else share
        answers[0, device, step] = {
            **{"name": None, "window_ns": length, "device_ns": device_ns},
            "modelled_pct": percent(sum(a.length for a in own if a in bearers), device_ns),
            **{"model_flops": work, "hardware_flops": work, "modelled_bytes": moved},
            "matrix_pct": 100.0 if work else None,
            **{"achieved_tflops": rate, "achieved_tbps": moved / length / 1e3 if length else None},
            **{"dtype": "fp32" if work else None, "peak_tflops": PEAK_TFLOPS if work else None},
            **{"mfu_pct": shown, "hfu_pct": shown},
        }
    return answers
