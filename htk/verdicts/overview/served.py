"""What a server's iterations do, how near the best they are, and what to ask of them."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.core.humanize import format_duration, pluralize_count, shorten_text
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.base.names.server_ranges import DECODE, MIXED, PREFILL
from htk.physics.detected import common_device
from htk.physics.kernel_time import BASES, FORMULA
from htk.traces.trace.trace import Trace

_TAIL = 20  # iterations of which a 99th percentile says something
_MODELLED_PCT = 50
_LEAST_MEASURED_PCT = 10  # of the GPU time
_READS_MEMORY = ("gemm", "moe", "attention")
_FAMILIES = {"attention": "attention", "communication": "communication"}
_CAUSES = 3  # that a summary tells
_FAMILIES_TOLD = 3  # with products
_LARGEST = 40  # % of the time from which a kernel is named


@dataclass(frozen=True)
class ServedVerdict:
    """What a first look at a server's recording tells."""

    headline: str
    next: tuple[tuple[str, str], ...]


def served_verdict(trace: Trace, advice: Result) -> ServedVerdict | None:
    """Return what a server's iterations tell, with what `recommendations` says of itself; None:
    none of them is linked to GPU work."""
    rows = [row for row in ask_trace(trace, "serving_iterations").to_pylist() if row["elapsed_ns"]]
    first = rows[0]["rank"] if rows else None
    own = [row for row in rows if row["rank"] == first]
    if not own:
        return None
    parts = [
        _iterations_in_words(own),
        *_describe_times(own),
        *_describe_shares(trace, own),
        _describe_nearness(trace, own),
    ]
    parts += _beside_best(trace, len(rows))
    if why_none := advice.coverage.get("cannot_be_told"):
        parts.append(why_none)
    elif len(advice) < _CAUSES:
        parts.append("nothing else that was tried gains more than the replay could miss")
    wanted = _suggest_next(trace, len({row["rank"] for row in rows}))
    return ServedVerdict("; ".join(parts), wanted)


def _iterations_in_words(own: list[Fields]) -> str:
    """Return how many iterations of each phase there are, and of how many requests."""
    counts = Counter(row["phase"] for row in own)
    parts = []
    for phase, count in counts.most_common():
        rows = [row for row in own if row["phase"] == phase]
        requests = _compute_median(rows, "decode_requests")
        tokens = _compute_median(rows, "prefill_tokens")
        sizes = []
        if tokens and phase in (PREFILL, MIXED):
            sizes.append(f"{tokens:,.0f} tokens of prompts")
        if requests and phase != PREFILL:
            sizes.append(pluralize_count(round(requests), "request"))
        named = f"{count:,} {phase or 'untold'} iteration{'s' if count > 1 else ''}"
        parts.append(f"{named} of {' and '.join(sizes)}" if sizes else named)
    return ", ".join(parts)


def _compute_median(rows: list[Fields], column: str) -> float:
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.median(values)) if values else 0.0


def _describe_times(own: list[Fields]) -> list[str]:
    """Return how long iterations take, those that answer first."""
    parts = []
    for phase, unit in ((DECODE, "a token"), (MIXED, "an iteration"), (PREFILL, "a prefill")):
        times = [row["elapsed_ns"] for row in own if row["phase"] == phase]
        if not times:
            continue
        if any("speculative" in (row["traits"] or "") for row in own) and phase == DECODE:
            unit = "an iteration"
        text = f"{format_duration(round(float(np.median(times))))} {unit}"
        if len(times) >= _TAIL:
            text += f" at the median, p99 {format_duration(round(float(np.quantile(times, 0.99))))}"
        elif len(times) > 1:
            text += f" at the median, {format_duration(max(times))} at most"
        parts.append(text)
    return parts


def _describe_shares(trace: Trace, own: list[Fields]) -> list[str]:
    """Return what takes most of the time: families of kernels, the largest kernel, gaps."""
    families = ask_trace(trace, "kernel_families").to_pylist()
    total = sum(row["total_ns"] for row in families) or 1
    busy = sum(row["device_busy_ns"] for row in own)
    elapsed = max(sum(row["elapsed_ns"] for row in own), 1)
    running = min(busy / elapsed, 1.0)
    pct = {row["family"]: 100 * running * row["total_ns"] / total for row in families}
    experts = 100 * sum(row["expert_ns"] or 0 for row in own) / elapsed
    products = pct.pop("gemm", 0.0) + pct.pop("moe", 0.0) - experts
    named = {_FAMILIES[name]: share for name, share in pct.items() if name in _FAMILIES}
    named |= {"products of experts": experts, "matrix products": products}
    first = sorted(named.items(), key=lambda item: -item[1])[:_FAMILIES_TOLD]
    parts = [f"{share:.0f} % {name}" for name, share in first if share >= 1]
    largest = ask_trace(trace, "kernel_top", n=1).to_pylist()[0]
    share = 100 * running * largest["total_ns"] / total
    if share >= _LARGEST:
        parts.append(f"{share:.0f} % in {shorten_text(largest['name'])}")
    parts.append(f"{100 * (1 - running):.0f} % gaps")
    return [", ".join(parts)]


def _describe_nearness(trace: Trace, own: list[Fields]) -> str:
    """Return how long an iteration takes at least on this GPU, or why that is not known."""
    try:
        answer = ask_trace(trace, "roofline", n=0)
    except HtkError as error:
        return f"how near the best is not known: {error}"
    modelled = answer.coverage.get("modelled_pct_of_device_time") or 0.0
    recorded = common_device(trace.tables["ranks"])
    device = None if recorded is None else recorded.gpu
    if modelled < _MODELLED_PCT or device is None:
        why = "the catalogue does not hold this GPU"
        if device is not None:
            why = f"{100 - modelled:.0f} % of the GPU time is not modelled"
            if (answer.coverage.get("not_modelled_ns") or {}).get("in CUDA graphs"):
                why += ", for want of the capture's recording beside this one"
        return f"how near the best is not known: {why}"
    rows = [row for row in answer.to_pylist() if row["roofline_ns"]]
    ranks = max(len(trace.ranks), 1)
    iterations = len(own) * ranks
    if all(row["phase"] == DECODE for row in own):
        read = sum(
            row["bytes_per_call"] * row["count"]
            for row in rows
            if row["family"] in _READS_MEMORY and row["bytes_per_call"]
        )
        least = read / iterations / device.memory_gbps
        what = "weights and KV cache alone need"
    else:
        least = sum(row["roofline_ns"] * row["count"] for row in rows) / iterations
        what = "its operations and bytes need at least"
    return f"{what} {format_duration(round(least))} at this GPU's rates"


def _beside_best(trace: Trace, iterations: int) -> list[str]:
    """Return how long the fastest library takes for kernels whose sizes are known, and how much of
    the time nothing measured stands beside; []: of few."""
    try:
        answer = ask_trace(trace, "kernel_gap", n=0)
    except HtkError:
        return []
    rows = answer.to_pylist()
    measured = [row for row in rows if row["basis"] != BASES[FORMULA]]
    parts = []
    if sum(row["device_time_pct"] for row in measured) >= _LEAST_MEASURED_PCT:
        took, best = _describe_sums(measured, iterations)
        parts.append(
            f"products and attention of known sizes take {took}, the fastest {best} as measured"
        )
    unlike_pct = answer.coverage["no_measured_neighbour_pct"] or 0.0
    if unlike_pct >= _LEAST_MEASURED_PCT:
        text = f"{unlike_pct:.0f} % of the GPU time is kernels of which none like it was measured"
        if guessed := [row for row in rows if row["basis"] == BASES[FORMULA]]:
            text += " (by formula {1} where {0} were taken)".format(
                *_describe_sums(guessed, iterations)
            )
        parts.append(text)
    return parts


def _describe_sums(rows: list[Fields], iterations: int) -> list[str]:
    """Return what rows of `kernel_gap` took of an iteration, and what the fastest library takes."""
    sums = (sum(row[column] for row in rows) for column in ("device_ns", "best_ns"))
    return [format_duration(round(total / iterations)) for total in sums]


def _suggest_next(trace: Trace, ranks: int) -> tuple[tuple[str, str], ...]:
    """Return what to ask of a server."""
    wanted = {
        "whatif": "what a server can change, and what each would gain",
        "iteration_times": "p50, p90 and p99 by phase, batch and context",
        "iteration_gaps": "what the GPU waits for: scheduler, sampling, launches, copies",
        "serving_iterations": "each iteration: requests, tokens, time, gap",
        "roofline": "how near its operators come to what the GPU can do",
        "kernel_gap": "how near its kernels come to the fastest measured at their sizes",
        "kernel_top": "which kernels take the time",
    }
    if ranks > 1 and trace.tables["collectives"].num_rows:
        wanted["comm_wait"] = "who waits for whom in the sums of a shared model"
    return tuple(wanted.items())
