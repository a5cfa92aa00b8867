"""Analyses that join intervals, against twins that count every nanosecond.

Random spans: of no length, nested, touching, overlapping on several streams.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from htk.analyses.kernels.memory_bandwidth import memory_bandwidth
from htk.analyses.ops.annotation_breakdown import annotation_breakdown
from htk.analyses.run.serving_iterations import serving_iterations
from htk.analyses.time.comm_compute_ratio import comm_compute_ratio
from htk.analyses.time.phase_breakdown import phase_breakdown
from htk.quantities.derived import registry
from htk.quantities.derived.exposure import comm_shares, lanes_of
from htk.quantities.derived.passes import kernel_passes
from tests.tables import answer_of, make

Span = tuple[int, int]
SPAN = st.tuples(st.integers(0, 30), st.integers(0, 10))
KINDS = ("compute", "comm", "memory")
PHASES = ("forward", "backward", "optimizer")


def ticks(spans: list[Span]) -> set[int]:
    return {t for start, length in spans for t in range(start, start + length)}


def chosen(rows: list[tuple[Any, Span]], wanted: Any) -> list[Span]:
    return [span for what, span in rows if what == wanted]


@given(st.lists(st.tuples(st.sampled_from(KINDS), SPAN), min_size=1, max_size=12))
def test_compute_and_communication(rows: list[tuple[str, Span]]) -> None:
    acts = [{"kind": k, "start_ns": s, "end_ns": s + n} for k, (s, n) in rows]
    window = make("rank_windows", [{"start_ns": 0, "end_ns": 50, "complete": True}])
    (row,) = answer_of(comm_compute_ratio, activities=make("activities", acts), rank_windows=window)
    compute, comm = chosen(rows, "compute"), chosen(rows, "comm")
    assert (row["compute_ns"], row["comm_ns"]) == (len(ticks(compute)), len(ticks(comm)))
    assert row["compute_kernel_ns"] == sum(n for _, n in compute)
    assert row["comm_kernel_ns"] == sum(n for _, n in comm)


@given(st.lists(st.tuples(st.sampled_from(("HtoD", "DtoH")), SPAN), min_size=1, max_size=12))
def test_busy_time_of_copies(rows: list[tuple[str, Span]]) -> None:
    names = {"HtoD": "Memcpy HtoD (Pinned -> Device)", "DtoH": "Memcpy DtoH (Device -> Pinned)"}
    copies = [{"name": names[way], "activity": "copy", "kind": "memory", "size_bytes": 1000,
               "start_ns": s, "end_ns": s + n} for way, (s, n) in rows]  # fmt: skip
    found = answer_of(memory_bandwidth, kernels=make("kernels", copies))
    assert {r["direction"]: r["busy_ns"] for r in found} == {
        way: len(ticks(chosen(rows, way))) for way in {w for w, _ in rows}
    }


@given(st.lists(st.tuples(st.integers(0, 2), SPAN), max_size=12))
def test_gpu_time_of_phases_ranges_and_iterations(rows: list[tuple[int, Span]]) -> None:
    """What ranges one behind the other launched; it runs whenever."""
    kernels = [{"name": "k", "kind": "compute", "activity": "kernel", "start_ns": 100 + s,
                "end_ns": 100 + s + n} for _, (s, n) in rows]  # fmt: skip
    links = [{"launch_row": k, "launch_start_ns": 10 * p + 5, "launch_end_ns": 10 * p + 6,
              "annotation_row": p, "carry_in": False} for k, (p, _) in enumerate(rows)]  # fmt: skip
    calls = {"process": "1", "thread": "1"}
    thread = calls | {"on_gpu": False}
    tables = {
        "kernels": make("kernels", kernels),
        "kernel_links": make("kernel_links", links),
        "annotations": make("annotations", [
            {"name": name, "start_ns": 10 * p, "end_ns": 10 * p + 10, **thread}
            for p, name in enumerate(PHASES)
        ]),
        "annotation_links": make("annotation_links", [{} for _ in PHASES]),
        "launches": make("launches", [
            {"start_ns": link["launch_start_ns"], "end_ns": link["launch_end_ns"], **calls}
            for link in links
        ]),
        "launch_links": make("launch_links", [{} for _ in links]),
    }  # fmt: skip
    nothing = {name: make(name, []) for name in ("cpu_ops", "op_links", "op_passes")}
    reads = registry.find_maker("kernel_passes").reads
    tables["kernel_passes"] = kernel_passes(**{n: (tables | nothing)[n] for n in reads})
    expected = {name: len(ticks(chosen(rows, p))) for p, name in enumerate(PHASES)}
    found = {r["phase"]: r["device_busy_ns"] for r in answer_of(phase_breakdown, **tables)}
    assert {name: found.get(name) or 0 for name in PHASES} == expected
    found = {r["name"]: r["device_busy_ns"] for r in answer_of(annotation_breakdown, **tables)}
    assert {name: found.get(name) or 0 for name in PHASES} == expected
    served = answer_of(
        serving_iterations, **tables, options={"match": "forward|backward|optimizer"}
    )
    assert [r["device_busy_ns"] for r in served] == list(expected.values())


@given(st.lists(SPAN, max_size=6), st.lists(SPAN, max_size=5))
def test_collectives_share_what_no_compute_hides(comm: list[Span], compute: list[Span]) -> None:
    """An instant with k of them is 1/k for each; nanoseconds stay whole, so within one a cut."""
    acts = [{"kind": "compute", "start_ns": s, "end_ns": s + n} for s, n in compute]
    start, end = (np.array(c, np.int64) for c in ([s for s, _ in comm], [s + n for s, n in comm]))
    lanes = lanes_of(make("activities", [{} for _ in comm]))
    shares = comm_shares(make("activities", acts), lanes, start, end)
    for column, hidden in enumerate((set(), ticks(compute))):
        each = [Fraction(0)] * len(comm)
        for tick in ticks(comm) - hidden:
            active = [k for k, span in enumerate(comm) if tick in ticks([span])]
            for k in active:
                each[k] += Fraction(1, len(active))
        got = shares[:, column].tolist() if len(comm) else []
        assert sum(got) == len(ticks(comm) - hidden)
        cuts = 2 * (len(comm) + len(compute))
        assert all(abs(a - b) <= cuts for a, b in zip(got, each, strict=True))
