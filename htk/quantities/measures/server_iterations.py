"""The iterations of an inference server, by the ranges that it puts round them."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    codes_of,
    match_texts,
    read_booleans,
    read_keys,
    read_numbers,
    read_times,
)
from htk.base.columns.groups import Groups
from htk.base.columns.intervals import union_lengths
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.humanize import parse_pattern
from htk.base.errors import MissingTable
from htk.base.names.kinds import is_of_experts
from htk.base.names.server_ranges import (
    FORMS,
    RequestSums,
    ServerRange,
    describe_lone_capture,
    form_of,
    phase_of,
    read_server_range,
)
from htk.quantities.measures.launching import launched_within

_UNTOLD = ServerRange(None, RequestSums(), RequestSums())


@dataclass(frozen=True)
class ServerIterations:
    """By rank, in order of time."""

    form: str  # of the names
    rank: Ints
    cycle: Ints
    start: Ints
    end: Ints
    facts: list[ServerRange]

    @classmethod
    def from_annotations(
        cls, annotations: pa.Table, match: str | None = None
    ) -> "ServerIterations":
        """Return the iterations that ranges tell; `match`: a regular expression of their names."""
        form, read, rows = _find_ranges(annotations, match)
        start = read_numbers(annotations["start_ns"])
        rank = read_numbers(annotations["rank"], NONE)
        rows = rows[order_by(rank[rows], start[rows])]
        codes, names = codes_of(annotations["name"])
        return cls(
            form,
            rank[rows].astype(np.int64),
            read_keys(annotations["cycle"])[rows],
            start[rows],
            read_numbers(annotations["end_ns"])[rows],
            [read(str(names[code])) or _UNTOLD for code in codes[rows].tolist()],
        )

    def launching(self, kernels: pa.Table, kernel_links: pa.Table) -> Ints:
        """Return the iteration that launched each activity, or NONE."""
        return launched_within(self.rank, self.start, self.end, kernels, kernel_links)


def match_experts(kernels: pa.Table) -> Mask:
    """Return which kernels work for experts of a mixture."""
    of_family = match_texts(kernels["family"], "moe".__eq__)
    return of_family | match_texts(kernels["name"], lambda name: is_of_experts(name, ""))


class LaunchedWork:
    """What each iteration had on the GPU: count, first start, last end, union."""

    def __init__(self, iteration: Ints, length: int, kernels: pa.Table) -> None:
        rows = np.flatnonzero(iteration >= 0)
        begin, end = read_times(kernels, rows)
        self.count = np.bincount(iteration[rows], minlength=length).astype(np.int64)
        self.first = np.zeros(length, np.int64)
        self.last = np.zeros(length, np.int64)
        self.busy = np.zeros(length, np.int64)
        if not len(rows):
            return
        groups = Groups.by_keys(iteration[rows])
        self.first[groups.keys[:, 0]] = groups.min(begin)
        self.last[groups.keys[:, 0]] = groups.max(end)
        self.busy = union_lengths(iteration[rows], begin, end, length)


def _find_ranges(
    annotations: pa.Table, match: str | None
) -> tuple[str, Callable[[str], ServerRange | None], Ints]:
    """Return the form of a recording's iterations, what reads their names, and their rows."""
    codes, names = codes_of(annotations["name"])
    host = ~read_booleans(annotations["on_gpu"])
    read: Callable[[str], ServerRange | None] = read_server_range
    forms = [form_of(name) for name in names.to_pylist()]
    wanted = [*FORMS]
    if match:
        pattern = parse_pattern(match, "--match")
        read = pattern_reader(pattern)
        forms = ["--match" if pattern.match(name) else None for name in names.to_pylist()]
        wanted = ["--match"]
    for form in wanted:
        fits = np.array([other == form for other in forms] + [False], bool)
        rows = np.flatnonzero(fits[codes] & host)
        if len(rows):
            return form, read, rows
    if capture := describe_lone_capture(names.to_pylist()):
        raise MissingTable(capture)
    raise MissingTable(
        "no ranges round the iterations of a server; vLLM, SGLang, ATOM and TensorRT-LLM write "
        "them, others need record_function and --match"
    )


def pattern_reader(pattern: re.Pattern[str]) -> Callable[[str], ServerRange]:
    """Return what reads names by the named groups of a pattern."""

    def read_range(name: str) -> ServerRange:
        match = pattern.match(name)
        fields = {k: v for k, v in match.groupdict().items() if v is not None} if match else {}
        counts = {name: int(value) for name, value in fields.items() if value.isdigit()}
        prompts = RequestSums(counts.get("prefill"), counts.get("prefill_tokens"))
        answers = RequestSums(counts.get("decode"), counts.get("decode_tokens"))
        mode = read_server_range(fields.get("mode", ""))
        phase = phase_of(prompts.requests, answers.requests) if mode is None else mode.phase
        return ServerRange(phase, prompts, answers, counts.get("padded"))

    return read_range
