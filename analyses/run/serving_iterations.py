"""Iterations of an inference server."""

import re
from typing import Annotated

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, number, numbers, texts, truths
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import union_lengths
from htk.base.columns.types import Ints
from htk.base.core.analysis import analysis, with_coverage
from htk.base.core.chart import Bar
from htk.base.errors import MissingTable, UsageError
from htk.base.schema import TEXT, table
from htk.quantities.measures.launching import launched_within

# Formats in the order of how much they tell; the first that occurs is read.
_SUMS = r"\((?:sq(?P<{0}_tokens>\d+)(?:sk(?P<{0}_context>\d+))?|(?P<{0}_plain>\d+))[^)]*\)"
_FORMATS = {
    "execute_…": re.compile(
        r"execute_(?:(?P<padded>\d+)_)?context_(?P<prefill>\d+)"
        + _SUMS.format("prefill")
        + r"_generation_(?P<decode>\d+)"
        + _SUMS.format("decode")
    ),
    "step[…]": re.compile(
        r"step\[(?P<mode>\w+) bs=(?P<requests>\d+)(?: toks=(?P<tokens>\d+))?[^\]]*\]"
    ),
    "plain": re.compile(r"(?P<mode>prefill|decode|extend|generate)\b.*", re.IGNORECASE),
}
_PREFILL = ("extend", "prefill", "mixed")

RETURNS = table(
    rank=(pa.int32(), "Global rank."),
    iteration=(pa.int32(), "Number of the iteration on its rank, from 0."),
    phase=(TEXT, "prefill, decode or mixed."),
    prefill_requests=(pa.int64(), "Requests being read; null where not told."),
    prefill_tokens=(pa.int64(), "Their tokens in this iteration."),
    decode_requests=(pa.int64(), "Requests being answered."),
    decode_tokens=(pa.int64(), "Tokens computed for them."),
    context_tokens=(pa.int64(), "Tokens attended to, of all requests."),
    padded_tokens=(pa.int64(), "Tokens computed, padding included."),
    start_ns=(pa.int64(), "Start on the CPU, absolute."),
    cpu_ns=(pa.int64(), "Time on the CPU."),
    device_busy_ns=(pa.int64(), "Time that something ran on the GPU, of what it launched."),
    gpu_span_ns=(pa.int64(), "From the first of that to the last end; null: nothing."),
    gap_ns=(pa.int64(), "From the GPU end of the iteration before; negative where they overlap."),
    kernels=(pa.int64(), "GPU activities."),
)


@analysis(
    returns=RETURNS, chart=Bar("iteration", ("device_busy_ns", "gap_ns")), needs=("annotations",)
)
def serving_iterations(
    annotations: pa.Table,
    kernels: pa.Table,
    kernel_links: pa.Table,
    *,
    match: Annotated[
        str | None, "Regular expression that names must match: ranges that are iterations."
    ] = None,
) -> pa.Table:
    """What does each iteration of an inference server do, and how long does it take?

    Token counts come from the names of the ranges that vLLM and SGLang put round their iterations.
    Others need --match; its named groups prefill, prefill_tokens, decode, decode_tokens, padded
    and mode are understood.
    """
    form, read, rows = _iterations(annotations, match)
    rows = rows[np.lexsort((numbers(annotations["start_ns"])[rows], _ranks(annotations)[rows]))]
    start, end = (numbers(annotations[c])[rows] for c in ("start_ns", "end_ns"))
    rank = _ranks(annotations)[rows]
    iteration = launched_within(rank, start, end, kernels, kernel_links)
    gpu = _OnGpu(iteration, len(rows), kernels)
    codes, names = codes_of(annotations["name"])
    facts = [_facts(read, names[int(codes[r])].as_py()) for r in rows.tolist()]
    numbered = np.arange(len(rows)) - np.searchsorted(rank, rank)
    same = np.append(False, rank[1:] == rank[:-1]) & (gpu.count > 0)
    same[1:] &= gpu.count[:-1] > 0
    gap = gpu.first - np.append(0, gpu.last[:-1])
    some = gpu.count > 0
    answer = pa.table(
        [
            number(rank, pa.int32(), rank >= 0),
            number(numbered, pa.int32()),
            texts([_phase(f) for f in facts]),
            *(pa.array([f.get(name) for f in facts], pa.int64()) for name in _COUNTS),
            number(start, pa.int64()),
            number(end - start, pa.int64()),
            number(gpu.busy, pa.int64()),
            number(gpu.last - gpu.first, pa.int64(), some),
            number(gap, pa.int64(), same),
            number(gpu.count, pa.int64()),
        ],
        schema=RETURNS,
    )
    return with_coverage(answer, format=form, activities_in_no_iteration=int((iteration < 0).sum()))


_COUNTS = (
    "prefill_requests",
    "prefill_tokens",
    "decode_requests",
    "decode_tokens",
    "context_tokens",
    "padded_tokens",
)


def _iterations(annotations: pa.Table, match: str | None) -> tuple[str, re.Pattern[str], Ints]:
    forms = {"--match": _compiled(match)} if match else _FORMATS
    codes, names = codes_of(annotations["name"])
    host = ~truths(annotations["on_gpu"])
    for form, read in forms.items():
        fits = np.array([bool(read.match(n)) for n in names.to_pylist()] + [False], bool)
        rows = np.flatnonzero(fits[codes] & host)
        if len(rows):
            return form, read, rows
    raise MissingTable(
        "no ranges round the iterations of a server; vLLM and SGLang write them, others need "
        "record_function and --match"
    )


def _compiled(match: str) -> re.Pattern[str]:

    try:
        return re.compile(match)
    except re.error as error:
        raise UsageError(f"--match is not a regular expression: {error}") from None


def _facts(read: re.Pattern[str], name: str) -> dict[str, int | str]:
    match = read.match(name)
    fields = {k: v for k, v in match.groupdict().items() if v is not None} if match else {}
    facts: dict[str, int | str] = {}
    mode = fields.get("mode", "").lower()
    side = "prefill" if mode in _PREFILL else "decode"
    if mode:
        facts["phase"] = side
    counts = {
        "prefill_requests": fields.get("prefill"),
        "prefill_tokens": fields.get("prefill_tokens", fields.get("prefill_plain")),
        "decode_requests": fields.get("decode"),
        "decode_tokens": fields.get("decode_tokens", fields.get("decode_plain")),
        "padded_tokens": fields.get("padded"),
    }
    if "requests" in fields:
        counts |= {f"{side}_requests": fields["requests"], f"{side}_tokens": fields.get("tokens")}
    facts |= {k: int(v) for k, v in counts.items() if v is not None and v.isdigit()}
    contexts = [fields[k] for k in ("prefill_context", "decode_context") if k in fields]
    if contexts:
        facts["context_tokens"] = sum(map(int, contexts))
    return facts


def _phase(facts: dict[str, int | str]) -> str | None:
    if "phase" in facts:
        return str(facts["phase"])
    sides = [s for s in ("prefill", "decode") if facts.get(f"{s}_requests")]
    return "mixed" if len(sides) == 2 else sides[0] if sides else None


def _ranks(rows: pa.Table) -> Ints:
    return numbers(rows["rank"], -1).astype(np.int64)


class _OnGpu:
    """What each iteration had on the GPU: count, first start, last end, union."""

    def __init__(self, iteration: Ints, length: int, kernels: pa.Table) -> None:
        rows = np.flatnonzero(iteration >= 0)
        begin, end = (numbers(kernels[c])[rows] for c in ("start_ns", "end_ns"))
        self.count = np.bincount(iteration[rows], minlength=length).astype(np.int64)
        self.first, self.last, self.busy = (np.zeros(length, np.int64) for _ in range(3))
        if not len(rows):
            return
        groups = Groups.by_keys(iteration[rows])
        self.first[groups.keys[:, 0]] = groups.min(begin)
        self.last[groups.keys[:, 0]] = groups.max(end)
        self.busy = union_lengths(iteration[rows], begin, end, length)
