"""Planes of TPUs, against a program that is made up, nanosecond by nanosecond."""

from collections import Counter
from pathlib import Path

import pytest

from htk.answers.ask import ask_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.verify import other_formats
from htk.verdicts.verify.outcome import DIFFERS, OK, Outcome, list_outcomes
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tpu_cores import sum_profile
from sample_traces.xplane_export import Plane, Row
from tests.parsers.opened_files import kept, opened, rows
from tests.parsers.xplane.tpu_profile import (
    BESIDE,
    BYTES,
    COMM,
    COMPUTE,
    COPIES,
    CORES,
    FIRST_STEP,
    OPERATORS,
    ORIGIN_NS,
    STEP_NS,
    begin_of,
    tpu_profile,
)

STEPS = 2
COUNTED_IN_ORDER = (
    "fusion.1", "fusion.2", "fusion.3", "psum.4", "fusion.7", "fusion.8", "outfeed.2"
)  # fmt: skip


@pytest.fixture(scope="module", params=["device", "host"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    path = tmp_path_factory.mktemp("tpu") / "host1.xplane.pb"
    path.write_bytes(tpu_profile(steps=STEPS, marks=request.param))
    return kept(path)


def moments(spans: list[tuple[int, int]]) -> set[int]:
    return {moment for start, end in spans for moment in range(start, end)}


def test_each_nanosecond_counts_once(trace: Trace) -> None:
    compute, comm, copies = map(moments, (COMPUTE, COMM, COPIES))
    for row in ask_trace(trace, "time_breakdown").to_pylist():
        assert row["compute_ns"] == STEPS * len(compute)
        assert row["comm_ns"] == STEPS * len(comm)
        assert row["exposed_comm_ns"] == STEPS * len(comm - compute)
        assert row["memory_ns"] == STEPS * len(copies)
        assert row["exposed_memory_ns"] == STEPS * len(copies - compute - comm)
        assert row["busy_ns"] == STEPS * len(compute | comm | copies)


def test_operators_are_kernels_where_they_ran(trace: Trace) -> None:
    """Those in `while.5` count, `reduce.9` is a part of `fusion.8`, starts and dones are one."""
    counted = {n: o[:2] for n, o in OPERATORS.items()} | BESIDE
    for name in ("while.5", "reduce.9", "all-gather-done.1", "copy-done.6"):
        del counted[name]
    wanted = {
        (core, name, ORIGIN_NS + begin_of(core, step) + start, end - start)
        for core in range(CORES)
        for step in range(STEPS)
        for name, (start, end) in counted.items()
    }
    kernels = rows(trace, "kernels")
    assert len(kernels) == len(wanted)
    assert wanted == {
        (k["device"], k["name"].split(" ")[0], k["start_ns"], k["end_ns"] - k["start_ns"])
        for k in kernels
    }
    beside = {k["name"] for k in kernels if k["stream"]}
    assert beside == {"all-gather-start.1", "copy-start.6 (DtoH)"}


def test_kinds_are_those_of_categories(trace: Trace) -> None:
    kinds = {row["name"]: row for row in ask_trace(trace, "kernel_top", n=0).to_pylist()}
    assert {name: (row["kind"], row["family"]) for name, row in kinds.items()} == {
        "fusion.1": ("compute", "elementwise"),
        "fusion.2": ("compute", "gemm"),
        "fusion.3": ("compute", "elementwise"),
        "fusion.7": ("compute", "elementwise"),
        "fusion.8": ("compute", "other"),
        "all-gather-start.1": ("comm", "communication"),
        "psum.4": ("comm", "communication"),
        "copy-start.6 (DtoH)": ("memory", "copy"),
        "outfeed.2 (DtoH)": ("memory", "copy"),
    }
    copies = ask_trace(trace, "memory_bandwidth").to_pylist()
    assert [(c["direction"], c["size_bytes"]) for c in copies] == [
        ("DtoH", 2 * STEPS * CORES * BYTES)
    ]


def test_collectives_carry_what_their_text_says(trace: Trace) -> None:
    told = ("raw_name", "type", "library", "group_size", "in_bytes", "out_bytes")
    assert Counter(tuple(row[n] for n in told) for row in rows(trace, "collectives")) == {
        ("all-gather-start.1", "all_gather", "xla", 4, BYTES, 4 * BYTES): STEPS * CORES,
        ("psum.4", "all_reduce", "xla", 2, BYTES, BYTES): STEPS * CORES,
    }


def test_programs_are_launched_in_steps(trace: Trace) -> None:
    """One call of the host launches a program on all cores."""
    links = trace.tables["kernel_links"].to_pylist()
    counted = Counter((link["launch_by"], link["step"]) for link in links)
    of_step = len(links) // STEPS
    assert counted == {("graph", FIRST_STEP + step): of_step for step in range(STEPS)}
    calls = rows(trace, "launches")
    assert [(c["name"], c["api"]) for c in calls] == [("DoEnqueueProgram", "tpu_runtime")] * STEPS
    periods = [row["gpu_period_ns"] for row in ask_trace(trace, "step_times").to_pylist()]
    assert periods.count(STEP_NS) == CORES * (STEPS - 1)


def test_hosts_that_mark_steps_stand_beside_those_that_do_not(tmp_path: Path) -> None:
    for marks in ("device", "host"):
        (tmp_path / f"{marks}.xplane.pb").write_bytes(tpu_profile(marks=marks))
    both = opened(tmp_path)
    links = zip(rows(both, "kernels"), both.tables["kernel_links"].to_pylist(), strict=True)
    steps = Counter((kernel["rank"], link["step"]) for kernel, link in links)
    of_step = len(COMPUTE) * CORES + len(COMM) * CORES + len(COPIES) * CORES
    assert steps == {(r, FIRST_STEP + k): of_step for r in range(2) for k in range(STEPS)}


def test_between_programs_a_core_waits_for_its_own(trace: Trace) -> None:
    for row in ask_trace(trace, "idle_breakdown").to_pylist():
        if row["cause"] == "inside_cuda_graph":
            assert row["idle_ns"] == STEPS * (50 + 100 + 40)  # none of the other core's begin


def test_what_is_not_read_is_counted_in_one_line(trace: Trace) -> None:
    assert [(i["kind"], i["text"], i["count"]) for i in rows(trace, "parse_issues")] == [
        ("unread_events", "events of TPUs' lines XLA TraceMe are not read", STEPS * CORES)
    ]


def test_ranges_of_devices_are_kept(trace: Trace) -> None:
    ranges = Counter(r["name"] for r in rows(trace, "annotations", on_gpu=True))
    assert ranges["while.5"] == ranges["jit_step(99)"] == STEPS * CORES


def test_starts_and_dones_that_no_line_shows_are_one_collective(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(tpu_profile(steps=1, cores=1, beside=False))
    kernels = {k["name"]: k for k in rows(opened(path), "kernels")}
    begin = ORIGIN_NS + begin_of(0, 0)
    for name, shown in (("all-gather-start.1",) * 2, ("copy-start.6", "copy-start.6 (DtoH)")):
        times = tuple(kernels[shown][column] - begin for column in ("start_ns", "end_ns"))
        assert times == BESIDE[name]
    assert not any("-done" in name for name in kernels)


def test_halves_of_what_the_recording_cut_keep_their_time(tmp_path: Path) -> None:
    plane = Plane("/device:TPU:0")
    plane.describe("all-reduce-done.1", "%all-reduce-done.1 = f32[2] all-reduce-done(%start.1)")
    plane.line("XLA Ops", [("all-reduce-done.1", 10, 30, {}), ("copy-start.2", 50, 5, {})])
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(plane.bytes())
    kernels = rows(opened(path), "kernels")
    assert [(k["name"], k["kind"], k["end_ns"] - k["start_ns"]) for k in kernels] == [
        ("all-reduce-done.1", "comm", 30),
        ("copy-start.2", "memory", 5),
    ]


def test_what_runs_beside_each_other_is_on_streams_of_its_own(tmp_path: Path) -> None:
    tensor, sparse = Plane("/device:TPU:1"), Plane("/device:TPU:1 SparseCore 0")
    events = [(f"copy-start.{k}", 10 * k, 25, {}) for k in range(4)]
    tensor.line("Async XLA Ops", events)
    sparse.line("Sparse Core Ops", [("gather.1", 5, 50, {})])
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(tensor.bytes() + sparse.bytes())
    trace = opened(path)
    kernels = rows(trace, "kernels", device=1)
    assert {k["name"]: k["stream"] for k in kernels} == {
        "copy-start.0": 1, "gather.1": 1000, "copy-start.1": 2, "copy-start.2": 3,
        "copy-start.3": 1,
    }  # fmt: skip
    assert {k["end_ns"] - k["start_ns"] for k in kernels} == {25, 50}


def test_a_loop_whose_body_was_not_recorded_counts(tmp_path: Path) -> None:
    plane = Plane("/device:TPU:0")
    plane.line("XLA Ops", [("while.1", 10, 90, {}), ("fusion.2", 100, 5, {})])
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(plane.bytes())
    assert [k["name"] for k in rows(opened(path), "kernels")] == ["while.1", "fusion.2"]


def held(path: Path) -> Outcome:
    (outcome,) = (o for o in list_outcomes(Subject(str(path))) if o.check.name == "other formats")
    return outcome


@pytest.mark.parametrize("beside", [True, False])
def test_verify_reads_each_core_a_second_time(tmp_path: Path, beside: bool) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(tpu_profile(steps=STEPS, beside=beside))
    outcome = held(path)
    lines = 2  # in order, and beside others: the count and the time of each
    assert (outcome.state, outcome.tally.compared) == (OK, CORES * lines * 2)
    in_order = moments([OPERATORS[name][:2] for name in COUNTED_IN_ORDER])
    assert sum_profile(path.read_bytes())["TPU 1, core 0, in order"] == (
        STEPS * len(COUNTED_IN_ORDER), STEPS * len(in_order)
    )  # fmt: skip


def test_verify_notices_operators_that_answers_lack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(tpu_profile(steps=STEPS))
    read = other_formats._rows_of
    monkeypatch.setattr(other_formats, "_rows_of", lambda *a: read(*a)[1:])
    outcome = held(path)
    assert outcome.state == DIFFERS and "TPU 0, core 0, in order: count" in outcome.finding


@pytest.mark.parametrize("spans", [
    [("while.1", 10, 90, {}), ("fusion.2", 100, 5, {})],
    [("while.1", 10, 90, {}), ("fusion.2", 20, 5, {}), ("reduce.3", 22, 1, {})],
    [("all-reduce-done.1", 10, 30, {}), ("copy-start.2", 50, 5, {})],
    [("fusion.1", 10, 30, {}), ("while.2", 12, 20, {}), ("add.3", 13, 2, {})],
])  # fmt: skip
def test_both_readings_of_what_is_cut_or_nests_agree(tmp_path: Path, spans: list[Row]) -> None:
    tensor, sparse = Plane("/device:TPU:0"), Plane("/device:TPU:0 SparseCore 1")
    tensor.line("XLA Ops", spans)
    sparse.line("Sparse Core Ops", spans)
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(tensor.bytes() + sparse.bytes())
    outcome = held(path)
    assert outcome.state == OK and outcome.tally.compared == 2 * 2
