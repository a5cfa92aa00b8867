"""Two steps of one rank, small enough to work out on paper, for tests of graph and replay.

Each step: the thread launches `a` (100 long) and `b` (50 long) on stream 7, each launch call 10
long with 5 between them; delays of launches are 20. Steps begin every 200.
"""

from typing import Any

import pyarrow as pa

from htk.base.schema import DERIVED, TABLES
from htk.quantities.derived.links import kernel_links, launch_links, op_links
from htk.quantities.derived.passes import kernel_passes, op_passes
from htk.quantities.derived.user_ranges import annotation_links
from htk.quantities.derived.windows import rank_windows, step_windows
from tests.tables import make

PERIOD = 200


def step_tables(
    steps: int = 3, lengths: tuple[int, int] = (100, 50), period: int = PERIOD
) -> dict[str, pa.Table]:
    kernels: list[dict[str, Any]] = []
    launches: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for k in range(steps):
        begin = 1000 + period * k
        annotations.append(
            {
                "name": f"ProfilerStep#{k}",
                "step": k,
                "on_gpu": False,
                "start_ns": begin,
                "end_ns": begin + period - 1,
                "process": "1",
                "thread": "1",
            }
        )
        first = begin + 20
        second = max(first + lengths[0], begin + 15 + 20)
        for i, (start, length) in enumerate(((first, lengths[0]), (second, lengths[1]))):
            number = 2 * k + i
            call = begin + 15 * i
            launches.append(
                {
                    "name": "cudaLaunchKernel",
                    "api": "cuda_runtime",
                    "process": "1",
                    "thread": "1",
                    "start_ns": call,
                    "end_ns": call + 10,
                    "correlation": number,
                    "event": 100 + number,
                }
            )
            kernels.append(
                {
                    "name": "ab"[i],
                    "activity": "kernel",
                    "kind": "compute",
                    "family": "gemm",
                    "stream": 7,
                    "start_ns": start,
                    "end_ns": start + length,
                    "correlation": number,
                    "event": 200 + number,
                }
            )
    return rebuilt(kernels, launches, annotations)


def rebuilt(
    kernels: list[dict[str, Any]],
    launches: list[dict[str, Any]],
    annotations: list[dict[str, Any]] | None = None,
) -> dict[str, pa.Table]:
    """All tables of a recording of these; what is not given is usual."""
    kernel = {"name": "k", "activity": "kernel", "kind": "compute", "family": "gemm"}
    call = {"api": "cuda_runtime", "process": "1", "thread": "1"}
    kernels = [
        {"correlation": k, "event": 2000 + k} | kernel | row for k, row in enumerate(kernels)
    ]
    launches = [{"event": 1000 + k} | call | row for k, row in enumerate(launches)]
    tables = {name: make(name, []) for name in (*TABLES, *DERIVED)}
    tables |= {
        "kernels": make("kernels", kernels),
        "launches": make("launches", launches),
        "annotations": make("annotations", annotations or []),
    }
    for name, maker in (
        ("op_links", op_links),
        ("kernel_links", kernel_links),
        ("launch_links", launch_links),
        ("annotation_links", annotation_links),
        ("op_passes", op_passes),
        ("kernel_passes", kernel_passes),
        ("rank_windows", rank_windows),
        ("step_windows", step_windows),
    ):
        read = maker.__code__.co_varnames[: maker.__code__.co_argcount]
        derived = maker(*(tables[r] for r in read))
        tables[name] = _whole(name, derived)
    return tables


def _whole(name: str, derived: pa.Table) -> pa.Table:
    """With rank and cycle 0."""
    columns = []
    for field in DERIVED[name]:
        if field.name in derived.column_names:
            columns.append(derived[field.name])
        else:
            columns.append(pa.array([0] * derived.num_rows, field.type))
    return pa.table(columns, schema=DERIVED[name])
