"""What rocprofv3 records, whichever way it writes it, in the vocabulary.

Times are those of the machine's clock since it booted; nothing ties them to the date.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import (
    build_numbers,
    build_texts,
    codes_of,
    decode_texts,
    map_texts,
    match_texts,
)
from htk.base.columns.types import NONE, Ints, Mask
from htk.base.core.parser import Parsed
from htk.base.schema import FLOAT64, INT32, INT64, STRING
from htk.parsers.common.log_records import Issues
from htk.parsers.common.nccl_ranges import CALL, FACTS, build_collectives
from htk.parsers.common.span_tables import (
    build_activities,
    build_empty_table,
    build_optional,
    build_process_table,
    build_recording,
    int_texts,
    spell_dimensions,
    step_numbers,
)

# As Kineto writes copies; where host memory is pinned rocprofv3 does not say.
_COPIES = {
    "HOST_TO_HOST": "Memcpy HtoH (Host -> Host)",
    "HOST_TO_DEVICE": "Memcpy HtoD (Host -> Device)",
    "DEVICE_TO_HOST": "Memcpy DtoH (Device -> Host)",
    "DEVICE_TO_DEVICE": "Memcpy DtoD (Device -> Device)",
}
_CLONE = re.compile(r"( \[clone .*\])?(\.kd)?$")
_CALLS = {"HIP": "hip_runtime", "HSA": "hsa_api", "ROCDECODE": "rocdecode", "ROCJPEG": "rocjpeg"}
_MARK = re.compile(r"^roctx(Mark|RangePop|RangeStop)")


@dataclass(frozen=True)
class SpanRows:
    """Rows of one sort, a value a row; -1: none."""

    name: pa.Array
    start: Ints
    end: Ints
    correlation: Ints

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class GpuWork(SpanRows):
    """Kernels or copies."""

    device: Ints
    stream: Ints
    size: Ints  # bytes copied, or shared memory of a kernel
    registers: Ints
    grid: tuple[Ints, Ints, Ints]  # work items
    block: tuple[Ints, Ints, Ints]


@dataclass(frozen=True)
class ApiCalls(SpanRows):
    """Calls of libraries and marked ranges."""

    thread: Ints
    domain: pa.Array  # HIP_RUNTIME_API, HSA_CORE_API, MARKER_CORE_RANGE_API, RCCL_API, …


def kernel_name(name: str) -> str:
    """Return the name without what the compiler hangs on it."""
    return _CLONE.sub("", name)


def build_rocprof_tables(
    pid: int, kernels: GpuWork, copies: GpuWork, calls: ApiCalls
) -> dict[str, pa.Table]:
    """Return every table that one process fills, without events and collectives."""
    activity_parts = [
        maker(work)
        for maker, work in ((_build_kernels, kernels), (_build_copies, copies))
        if len(work)
    ]
    domain = map_texts(calls.domain, lambda d: _CALLS.get(d.partition("_")[0]))
    launched = np.flatnonzero(codes_of(domain)[0] >= 0)
    by_name = {
        "launches": build_process_table(
            "launches",
            {
                "api": domain.take(pa.array(launched)),
                "correlation": build_optional(
                    calls.correlation[launched], calls.correlation[launched] > 0
                ),
                **_on_thread(calls, launched, pid),
            },
            len(launched),
        ),
        "annotations": _build_annotations(calls, pid),
    }
    if activity_parts:
        by_name["kernels"] = pa.concat_tables(activity_parts).unify_dictionaries()
    return by_name


def one_process(
    source: str,
    pid: int,
    kernels: GpuWork,
    copies: GpuWork,
    calls: ApiCalls,
    facts: Mapping[str, object],
    rank: int | None,
    issues: Issues,
) -> Parsed:
    """Return the recording of one process, with its collectives."""
    parsed = build_recording(build_rocprof_tables(pid, kernels, copies, calls), facts, rank, issues)
    own = dict(parsed.tables)
    own["collectives"] = build_collectives(
        source,
        own.get("kernels", build_empty_table("kernels")),
        own["launches"],
        rccl_calls(calls, pid),
        own["annotations"],
    )
    return Parsed(own, rank, parsed.world_size, parsed.facts)


def rccl_calls(calls: ApiCalls, pid: int) -> pa.Table:
    """Return the calls of RCCL, which tell the type of a collective but not its size."""
    chosen = np.flatnonzero(
        match_texts(calls.name, lambda name: CALL.match(name) is not None)
        & match_texts(calls.domain, lambda d: d.startswith("RCCL"))
    )
    columns = _on_thread(calls, chosen, pid)
    unknown = {
        name: pa.nulls(len(chosen), pa.uint64() if name == "comm" else INT64) for name in FACTS
    }
    return pa.table({**columns, **unknown})


def _build_annotations(calls: ApiCalls, pid: int) -> pa.Table:
    """Return the ranges of roctx and calls of RCCL; a mark is no range."""
    marker = match_texts(calls.domain, lambda d: d.startswith("MARKER_CORE"))
    ranges = match_texts(calls.domain, "MARKER_CORE_RANGE_API".__eq__)
    if ranges.any():  # newer versions write the calls of roctx beside the ranges
        marker = ranges
    marker &= ~match_texts(calls.name, lambda name: _MARK.match(name) is not None)
    marker &= calls.end > calls.start
    rccl = match_texts(calls.domain, lambda d: d.startswith("RCCL"))
    chosen = np.flatnonzero(marker | rccl)
    columns = _on_thread(calls, chosen, pid)
    spent = calls.end[chosen] - calls.start[chosen]
    steps = step_numbers(columns["name"], spent)
    return build_process_table(
        "annotations",
        {
            **columns,
            "on_gpu": pa.array(np.zeros(len(chosen), bool)),
            "step": build_optional(steps, steps >= 0, INT32),
        },
        len(chosen),
    )


def _build_kernels(work: GpuWork) -> pa.Table:
    """rocprofv3 counts work items; the vocabulary counts blocks."""
    blocks = [
        np.where((grid >= 0) & (block > 0), -(-grid // np.maximum(block, 1)), -1)
        for grid, block in zip(work.grid, work.block, strict=True)
    ]
    return build_activities(
        0,
        work.name,
        work.start,
        work.end,
        work.device,
        work.stream,
        work.correlation,
        grid=spell_dimensions(blocks),
        block=spell_dimensions(list(work.block)),
        registers=build_optional(work.registers, work.registers >= 0),
        shared_memory_bytes=build_optional(work.size, work.size >= 0),
    )


def _build_copies(work: GpuWork) -> pa.Table:
    name = map_texts(work.name, lambda n: _COPIES.get(n.removeprefix("MEMORY_COPY_"), n))
    taken = work.end - work.start
    measured: Mask = (work.size >= 0) & (taken > 0)
    rate = np.where(measured, work.size / np.where(measured, taken, 1), 0.0)
    return build_activities(
        1,
        name,
        work.start,
        work.end,
        work.device,
        work.stream,
        work.correlation,
        size_bytes=build_optional(work.size, work.size >= 0),
        bandwidth_gbps=build_numbers(rate, FLOAT64, measured),
    )


def _on_thread(calls: ApiCalls, chosen: Ints, pid: int) -> dict[str, pa.Array]:
    thread = calls.thread[chosen]
    codes, values = codes_of(int_texts(thread))
    return {
        "name": calls.name.take(pa.array(chosen)),
        "process": build_texts([str(pid)] * len(chosen)),
        "thread": decode_texts(np.where(thread >= 0, codes, NONE), values),
        "start_ns": build_numbers(calls.start[chosen], INT64),
        "end_ns": build_numbers(calls.end[chosen], INT64),
    }


def name_codes(codes: Ints, names: Mapping[int, str]) -> pa.Array:
    """Return the name of each number, as the file lists them; unknown numbers are shown as such."""
    distinct, inverse = np.unique(codes, return_inverse=True)
    listed = [names.get(code) or f"unknown {code}" for code in distinct.tolist()]
    return decode_texts(inverse, pa.array(listed, STRING))


__all__ = ["ApiCalls", "GpuWork", "SpanRows", "kernel_name", "name_codes", "one_process"]
