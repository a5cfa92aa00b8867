"""What would gain most in a server's iterations: each edit of them replayed, and how to make it."""

from collections.abc import Iterator

from htk.base.columns.arrow import match_texts, read_booleans
from htk.base.columns.nesting import FILE
from htk.base.columns.types import Ints
from htk.base.core.humanize import format_duration
from htk.base.errors import HtkError
from htk.base.mappings import Fields
from htk.base.names.server_ranges import is_server_range
from htk.traces.trace.trace import Trace
from htk.whatif.answer import Answer
from htk.whatif.baseline import build_baseline
from htk.whatif.served_iteration import ServedIteration
from htk.whatif.sweep import recommend_edits

_MOST_ACTIVITIES = 300_000  # of a recording that is replayed
_ASSUMED = "acceptance"  # of an edit: what nobody measured

# What an edit's gain shows, and what to try. Others are no advice without more knowledge.
_REMEDIES = {
    "requests=2x": (
        "requests share what reading the weights costs: twice as many would cost less each",
        "let more requests run at once (vLLM --max-num-seqs, SGLang --max-running-requests), as "
        "far as the KV cache and the time per token allow",
    ),
    "weights=fp8": (
        "products with weights do without FP8, which is read sooner and multiplied faster",
        "where accuracy allows: serve weights in FP8 (vLLM and SGLang --quantization fp8)",
    ),
    "weights=int4": (
        "weights are read in more than 4 bits",
        "where accuracy allows: serve a checkpoint in AWQ, GPTQ or MXFP4",
    ),
    "kv=fp8": (
        "keys and values are read in 16 bits",
        "where accuracy allows: vLLM --kv-cache-dtype fp8, SGLang --kv-cache-dtype fp8_e5m2",
    ),
    "draft=3,acceptance=0.7": (
        "an iteration gives each request one token",
        "speculative decoding; 0.7 of three drafted tokens are assumed to be right, measure yours",
    ),
    "remove_syncs": (
        "the host waits for the GPU, and the GPU then for the host",
        "schedule the next iteration while this one runs (vLLM --async-scheduling, SGLang's "
        "overlap scheduler), copy tokens without blocking",
    ),
    "graphs": (
        "the GPU waits for launches within iterations",
        "capture graphs for the sizes that occur (vLLM --cudagraph-capture-sizes, SGLang "
        "--cuda-graph-max-bs)",
    ),
    "no_skew": (
        "ranks that share a model wait for each other",
        "equal work for all ranks: experts, requests; look at the slowest host",
    ),
    "balanced_experts": (
        "some ranks' experts have more tokens than others'",
        "expert load balancing (vLLM --enable-eplb, SGLang --enable-eplb), replicated experts",
    ),
    "overlap": (
        "communication is exposed",
        "fused or one-shot all-reduces, two micro-batches (SGLang --enable-two-batch-overlap, "
        "vLLM --enable-dbo)",
    ),
}


def marks_iterations(trace: Trace) -> bool:
    """Return whether a server put ranges round its iterations."""
    marks = trace.tables["server_marks"]
    iterations = match_texts(marks["name"], is_server_range) & ~read_booleans(marks["on_gpu"])
    return FILE not in marks.column_names and bool(iterations.any())


def find_served_causes(trace: Trace, min_pct: float) -> tuple[list[Fields], str]:
    """Return what would gain most in an iteration, as rows of `recommendations`, or no row and why
    that cannot be told.

    `min_pct`: the least gain, of an iteration."""
    count = trace.tables["kernels"].num_rows
    if count > _MOST_ACTIVITIES:
        return [], f"what would gain is not tried for {count:,} activities: choose some with --from"
    try:
        start = build_baseline(trace.tables)
        answers = recommend_edits(start)
    except HtkError as error:
        return [], f"what would gain cannot be told: {error}"
    if start.refused or start.served is None:
        return [], f"what would gain cannot be told: {start.gate.verdict}"
    iteration_ns = start.step_ns / start.served.count
    of_cycle = _name_cycle(trace, start.model.replayed_rows)
    causes = [
        cause
        for answer in answers
        if (cause := _build_cause(start.served, answer, of_cycle))
        and 100 * cause["step_gain_ns"] >= min_pct * iteration_ns
    ]
    if not causes:
        return [], "no edit of a server gains more than the replay could miss"
    return sorted(causes, key=lambda row: (_ASSUMED in row["edit"], -row["step_gain_ns"])), ""


def _name_cycle(trace: Trace, replayed: Ints | None) -> str:
    """Return whose iterations were replayed, where there are several recordings."""
    if replayed is None or len(trace.cycles) == 1:
        return ""
    cycle = trace.tables["kernels"]["cycle"][int(replayed[0])].as_py()
    return f" (cycle {cycle}, that with the most GPU time)"


def _build_cause(served: ServedIteration, answer: Answer, of_cycle: str) -> Fields | None:
    """Return an answer as a cause: what the same tokens would take less, in an iteration."""
    (name, value), *more = answer.edits
    remedy = _REMEDIES.get(value if name == "serving" else name)
    if remedy is None or more or answer.step_ns is None:
        return None
    _, _, low, high = answer.intervals
    ends = [answer.measured_ns - step / answer.each for step in (high, answer.step_ns, low) if step]
    least, gain, most = (round(end / served.count) for end in ends)
    if gain <= 0:
        return None
    finding, advice = remedy
    return {
        "finding": finding,
        "evidence": ", ".join(_describe_rates(served, answer)) + of_cycle,
        "advice": advice,
        "step_gain_ns": gain,
        "step_gain_ns_lo90": least,
        "step_gain_ns_hi90": most,
        "basis": "replay",
        "edit": f"--{name.replace('_', '-')} {value}",
        "analysis": "whatif",
    }


def _describe_rates(served: ServedIteration, answer: Answer) -> Iterator[str]:
    """Yield what an answer does to tokens a second and to the time of each."""
    now = served.tokens_per_s(answer.measured_ns)
    if now and answer.tokens_per_s:
        yield f"{answer.tokens_per_s:,.0f} tokens/s in place of {now:,.0f}"
    was = served.tpot_ns(answer.measured_ns)
    if was and answer.tpot_ns:
        times = (format_duration(round(ns)) for ns in (answer.tpot_ns, was))
        yield "time per token {} in place of {}".format(*times)
