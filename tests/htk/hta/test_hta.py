"""The drop-in for HTA: its methods and columns, its asserted values, ours where it is wrong."""

import gzip
import inspect
import json
from enum import Flag
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import UsageError
from htk.hta import TimeSeriesTypes, TraceAnalysis
from htk.hta.frames import short_name
from tests.hta_truth import hta_truth
from tests.kineto_file import Event, kernel, launch, of_rank, op, span, step, write


def _open(shared: Path, name: str, **options: Any) -> TraceAnalysis:
    return TraceAnalysis(trace_dir=str(shared / "traces/hta" / name), **options)


@pytest.fixture
def two_ranks(tmp_path: Path) -> Path:
    """Rank 1 comes 3 us late to the all-reduce of the one step; ends are common."""
    for rank in (0, 1):
        comm = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"
        late = 3.0 * rank
        copy: Event = kernel("Memcpy HtoD (Pinned -> Device)", 20, 2, 3, stream=8)
        copy["cat"], copy["args"]["memory bandwidth (GB/s)"] = "gpu_memcpy", 6.5
        events = (
            step(5, 0, 30),
            op("aten::mm", 1, 4),
            op("aten::inner", 1.5, 3),
            launch(1, 2, 1),
            kernel("gemm<float>(int)", 4.001, 2, 1),
            launch(2, 4, 1, tid=2),
            kernel(comm, 6 + late, 9 - late, 2, stream=20),
            launch(3, 18, 1),
            copy,
            kernel("gemm<float>(int)", 26, 3, 1),
            span("train", 0, 29),
        )
        write(tmp_path / f"rank{rank}.json", *events, **of_rank(rank, 2))
    return tmp_path


@pytest.fixture
def analysis(two_ranks: Path) -> TraceAnalysis:
    return TraceAnalysis(trace_dir=str(two_ranks))


def test_methods_and_arguments_are_those_of_hta() -> None:
    theirs = pytest.importorskip("hta.trace_analysis", reason="HTA is an extra").TraceAnalysis
    named = {n for n, f in vars(theirs).items() if callable(f) and not n.startswith("_")}
    assert len(named) == 21
    for name in named | {"__init__"}:
        a, b = (inspect.signature(getattr(c, name)).parameters for c in (theirs, TraceAnalysis))
        assert set(a) <= set(b), name
        for argument in a.keys() - {"straggler_identification_impl"}:
            assert a[argument].default == b[argument].default, (name, argument)


def test_times_keep_their_nanoseconds(analysis: TraceAnalysis) -> None:
    found = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    # gemm 4.001-6.001 and 26-29, all-reduce 6-15 (9-15 on rank 1), copy 20-22
    assert found[0]["kernel_time(us)"] == 24.999
    assert found[0]["compute_time(us)"] == 5.0
    assert found[0]["idle_time(us)"] == pytest.approx(24.999 - 5 - 8.999 - 2)
    assert found[1]["non_compute_time(us)"] == pytest.approx(8)
    assert found[0]["idle_time_pctg"] == 36.0
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    assert overlap["comp_comm_overlap_pctg"].tolist() == [0.01, 0.0]


def test_kernels_by_kind_and_name(analysis: TraceAnalysis) -> None:
    kinds, named = analysis.get_gpu_kernel_breakdown(visualize=False)
    sums = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
    assert sums["COMPUTATION overlapping COMMUNICATION"] == 0.001
    assert sums["COMPUTATION"] == pytest.approx(9.999)
    gemm = named[(named["name"] == "gemm<float>(int)") & (named["rank"] == 0)].iloc[0]
    assert (gemm["sum (us)"], gemm["max (us)"], gemm["min (us)"]) == (5.0, 3.0, 2.0)
    few = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=0)[1]
    others = few[(few["kernel_type"] == "COMPUTATION") & (few["rank"] == 0)].iloc[0]
    assert (others["name"], others["max (us)"], others["mean (us)"]) == ("others", 3.0, 2.5)


def test_launches_queues_and_copies(analysis: TraceAnalysis, two_ranks: Path) -> None:
    stats = analysis.get_cuda_kernel_launch_stats(visualize=False)[0]
    assert stats["launch_delay"].tolist() == [1.001, 23.0, 1.0, 1.0]  # by the call, as in the file
    series = analysis.get_queue_length_time_series()
    stream7 = series[0][series[0]["stream"] == 7]
    assert stream7["queue_length"].max() == 2
    blocked = analysis.get_time_spent_blocked_on_full_queue(series, max_queue_length=1)
    assert blocked is not None and set(blocked["stream"]) == {7, 8, 20}
    summary = analysis.get_memory_bw_summary()
    assert summary is not None
    assert summary.index.tolist() == [(0, "Memcpy HtoD")]
    assert summary[("memory_bw_gbps", "max")].tolist() == [6.5]
    analysis.generate_trace_with_counters(TimeSeriesTypes.QUEUE_LENGTH)
    drawn = json.loads((two_ranks / "rank0_with_counters.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "C" for e in drawn) == 8


def test_counters_of_its_own_enum_are_named_by_direction(
    analysis: TraceAnalysis, two_ranks: Path
) -> None:
    theirs = Flag("TimeSeriesTypes", ["MEMCPY_BANDWIDTH", "QUEUE_LENGTH"])  # of another module
    analysis.generate_trace_with_counters(theirs.MEMCPY_BANDWIDTH | theirs.QUEUE_LENGTH)
    drawn = json.loads((two_ranks / "rank0_with_counters.json").read_text())["traceEvents"]
    counters = [e for e in drawn if e["ph"] == "C"]
    assert {e["name"] for e in counters} == {"Memcpy HtoD", "Queue Length"}
    assert [e["args"] for e in counters if e["name"] == "Memcpy HtoD"] == [
        {"Memcpy BW": 6.5},
        {"Memcpy BW": 0.0},
    ]
    with pytest.raises(UsageError, match="POWER is not one of QUEUE_LENGTH, MEMCPY_BANDWIDTH"):
        analysis.generate_trace_with_counters(Flag("Types", ["POWER"]).POWER)


def test_idle_time_by_stream(analysis: TraceAnalysis) -> None:
    idle, stats = analysis.get_idle_time_breakdown(visualize=False, show_idle_interval_stats=True)
    on7 = idle[(idle["stream"] == 7) & (idle["idle_time"] > 0)].to_dict("records")
    # the second kernel was launched long before the first ended, and came 20 us later
    assert [(r["idle_category"], r["idle_time"]) for r in on7] == [("kernel_wait", 20.0)]
    closer, _ = analysis.get_idle_time_breakdown(visualize=False, consecutive_kernel_delay=5)
    assert "other" in closer[closer["idle_time"] > 0]["idle_category"].tolist()
    assert stats is not None and {"stream", "count", "max"} <= set(stats.columns)


def test_operators_and_their_kernels(analysis: TraceAnalysis, tmp_path: Path) -> None:
    delays = analysis.get_aten_op_kernels_and_delay()[0].to_dict("records")
    assert delays[0]["aten_op_name"] == "aten::inner"
    assert delays[0]["avg_aten_op_launch_delay"] == 0.5
    found = analysis.get_frequent_cuda_kernel_sequences(
        "aten::mm", str(tmp_path / "out"), min_pattern_len=1
    ).to_dict("records")
    assert found[0]["pattern"] == "aten::mm|gemm<float>(int)|gemm<float>(int)"
    assert (found[0]["GPU kernel duration (us)"], found[0]["CPU op duration (us)"]) == (5.0, 4.0)
    (copy,) = (tmp_path / "out").iterdir()
    marked = json.loads(gzip.decompress(copy.read_bytes()))["traceEvents"]
    names = [e["name"] for e in marked if "Patterns" in e.get("args", {})]
    assert names == ["aten::mm", "gemm<float>(int)", "gemm<float>(int)"]


def test_who_is_late_whatever_nccl_calls_its_kernels(analysis: TraceAnalysis) -> None:
    assert analysis.get_profiler_steps() == [5]
    assert analysis.get_potential_stragglers(num_candidates=1) == [1]
    with pytest.raises(UsageError, match=r"the trace has \[5\]"):
        analysis.get_potential_stragglers(profiler_steps=[9])


def test_one_rank_has_no_straggler(tmp_path: Path) -> None:
    write(tmp_path / "a.json", step(1, 0, 9), kernel("k", 1, 2), **of_rank(0))
    with pytest.raises(UsageError, match="one rank"):
        TraceAnalysis(trace_dir=str(tmp_path)).get_potential_stragglers()


def test_a_trace_that_is_open_and_the_critical_path(tmp_path: Path) -> None:
    trace = htk.open("sample")
    same = htk.hta(trace, include_last_profiler_step=True)
    busy = same.get_temporal_breakdown(visualize=False)
    rows = trace.time_breakdown().to_pylist()
    assert busy["compute_time(us)"].tolist() == [r["compute_ns"] / 1000 for r in rows]
    path, found = same.critical_path_analysis(0, "ProfilerStep", 1)
    assert found and path is not None
    assert path.summary().sum() == pytest.approx(100)
    assert {"event_idx", "duration", "s_name", "bound_by"} <= set(
        path.get_critical_path_breakdown().columns
    )
    assert Path(same.overlay_critical_path_analysis(0, path, str(tmp_path))).exists()
    assert same.critical_path_analysis(0, "no such range", 0) == (None, False)


def test_data_loading_on_the_critical_path(tmp_path: Path) -> None:
    write(
        tmp_path / "a.json",
        step(1, 0, 90),
        op("aten::add", 1, 4),
        launch(1, 2, 1),
        kernel("add", 4, 3, 1),
        op("enumerate(DataLoader)#next", 6, 40),  # the GPU waits for the batch
        op("aten::mm", 47, 4),
        launch(2, 48, 2),
        kernel("gemm", 52, 30, 2),
        **of_rank(0),
    )
    analysis = TraceAnalysis(trace_dir=str(tmp_path))
    path, ok = analysis.critical_path_analysis(0, "ProfilerStep", 0, ["DataLoader"])
    assert ok and path is not None
    pieces = path.get_critical_path_breakdown()
    assert pieces[pieces["bound_by"] == "data_loading"]["duration"].sum() >= 40
    plain, _ = analysis.critical_path_analysis(0, "ProfilerStep", 0)
    assert plain is not None and "data_loading" not in plain.summary().index
    with pytest.raises(AttributeError, match="get_critical_path_breakdown"):
        path.save("folder")


def test_either_spelling_of_shorten_names(analysis: TraceAnalysis) -> None:
    for long in ({"shorten_names": False}, {"shortern_names": False}, {}):
        named = analysis.get_gpu_kernels_with_user_annotations(0, **long)
        assert named is None  # no ranges on the GPU
    assert list(inspect.signature(TraceAnalysis.critical_path_analysis).parameters)[-1] == (
        "data_load_events"
    )


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("from htk.hta import CallGraph", "TraceAnalysis"),
        ("from htk.hta.common.trace import Trace", "include_last_profiler_step=True"),
        ("from htk.hta.configs.parser_config import ParserConfig", "nothing is to be set up"),
        ("from htk.hta.memory_analysis import MemoryAnalysis", "memory-timeline"),
        ("from htk.hta import restore_cpgraph", "critical_path_analysis"),
    ],
)
def test_what_is_not_here_says_what_to_use(statement: str, advice: str) -> None:
    with pytest.raises(ImportError, match=advice):
        exec(statement, {})


def test_what_it_names_in_advice_is_there() -> None:
    assert htk.hta.shorten_name("a<int>(b)") == "a"
    assert {"memory_timeline", "memory_peaks"} <= set(dir(htk.open("sample")))
    assert not hasattr(htk.hta, "no_such_name")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        exec("import htk.hta.no_such_module", {})


def test_short_names() -> None:
    assert short_name("a<int>(b)") == "a" and short_name("a(1)") == "a"
    assert short_name("void x::f<4, g::h<int>, Array<char*, 3> >(int, k<int>)") == "x::f"
    assert short_name("Memcpy DtoD (Device -> Device)") == "Memcpy DtoD (Device -> Device)"


def test_the_real_hta_over_our_tables(two_ranks: Path) -> None:
    pytest.importorskip("hta", reason="HTA is an extra")
    theirs = htk.hta.for_hta(htk.open(two_ranks))
    ours = TraceAnalysis(trace_dir=str(two_ranks))
    a = theirs.get_temporal_breakdown(visualize=False)
    b = ours.get_temporal_breakdown(visualize=False)
    assert a["compute_time(us)"].tolist() == pytest.approx(b["compute_time(us)"].tolist())
    assert a["idle_time(us)"].tolist() == pytest.approx(b["idle_time(us)"].tolist())
    stats = theirs.get_cuda_kernel_launch_stats(visualize=False)[0]
    assert len(stats) == 4 and theirs.get_profiler_steps() == [5]


def test_its_own_trace_holds_the_chosen_steps(tmp_path: Path) -> None:
    pytest.importorskip("hta", reason="HTA is an extra")
    write(
        tmp_path / "a.json",
        step(1, 0, 10),
        op("aten::mm", 1, 4),
        launch(1, 2, 1),
        kernel("gemm", 11, 3, 1),  # runs in the second step, launched in the first
        step(2, 10, 10),
        op("aten::add", 11, 4),
        launch(2, 12, 1),
        kernel("add", 15, 3, 2),
        **of_rank(0),
    )
    kept = TraceAnalysis(trace_dir=str(tmp_path)).t
    kept.decode_symbol_ids()
    frame = kept.get_trace(0)
    assert sorted(frame["s_name"]) == ["ProfilerStep#1", "aten::mm", "cudaLaunchKernel", "gemm"]
    assert set(frame["iteration"]) == {1}
    every = TraceAnalysis(trace_dir=str(tmp_path), include_last_profiler_step=True).t.get_trace(0)
    assert every["iteration"].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
    assert every["index_correlation"].tolist() == [-1, -1, 3, 2, -1, -1, 7, 6]


# What HTA asserts in its own tests, on its traces.


def test_exact_times_on_its_traces(shared: Path) -> None:
    for name, right in hta_truth(shared)["exact_ns"].items():
        if not isinstance(right, dict) or "idle_ns" not in right:
            continue
        (row,) = _open(shared, name).get_temporal_breakdown(visualize=False).to_dict("records")
        assert round(row["kernel_time(us)"] * 1000) == right["kernel_time_ns"], name
        assert round(row["idle_time(us)"] * 1000) == right["idle_ns"], name
        assert round(row["compute_time(us)"] * 1000) == right["compute_ns"], name


def test_annotations_on_its_trace(shared: Path) -> None:
    analysis = _open(shared, "ns_resolution_trace")
    on_gpu = analysis.get_gpu_user_annotation_breakdown(visualize=False)
    on_cpu = analysis.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=False)
    assert on_gpu is not None and len(on_gpu) == 3
    assert on_cpu is not None and len(on_cpu) == 12
    few = analysis.get_gpu_user_annotation_breakdown(
        use_gpu_annotation=False, visualize=False, num_kernels=5, allowlist_patterns=["Optimizer"]
    )
    pytest.importorskip("hta", reason="HTA is an extra")
    for ranges, category in ((on_gpu, "gpu_user_annotation"), (on_cpu, "user_annotation")):
        trace = analysis.t
        events = trace.get_trace(0)
        chosen = events[events["cat"] == trace.symbol_table.sym_index[category]]
        sums = chosen.groupby(chosen["name"].map(trace.symbol_table.sym_table.__getitem__))["dur"]
        assert ranges["sum (us)"].tolist() == pytest.approx(sums.sum().tolist())
    assert few is not None
    assert len(few) == 8 and few["name"].str.contains("Optimizer").sum() == 2


def test_kernels_with_annotations_on_its_trace(shared: Path) -> None:
    found = _open(shared, "ns_resolution_trace").get_gpu_kernels_with_user_annotations(rank=0)
    assert found is not None and len(found) == 4876
    assert found["user_annotation"].nunique() == 4
    # HTA has 27: of the last step that it keeps, it loses the range, which runs late on the GPU.
    assert (found["s_user_annotation"] == "Optimizer.step#SGD.step").sum() == 36
    named = found.set_index("correlation")[["s_user_annotation", "s_name"]]
    assert named.loc[135139].tolist() == [
        "DistributedDataParallel.forward",
        "Memcpy DtoD (Device -> Device)",
    ]
    assert named.loc[164926].tolist() == [
        "Optimizer.step#SGD.step",
        "at::native::::multi_tensor_apply_kernel",
    ]


def test_no_gpu_on_its_trace(shared: Path) -> None:
    analysis = _open(shared, "rank_non_gpu")
    rank = analysis._frames.ranks[0]
    assert analysis.get_queue_length_time_series([rank]) == {}
    assert analysis.get_queue_length_summary([rank]) is None
    assert analysis.get_memory_bw_summary([rank]) is None
    assert analysis.get_temporal_breakdown(visualize=False).empty


def test_cupti_counters_on_its_trace(shared: Path) -> None:
    (found,) = _open(shared, "cupti_profiler").get_cupti_counter_data_with_operators()
    assert len(found) == 77
    fifth = found.sort_values("ts").iloc[5]
    assert fifth["cat"] == "cuda_profiler_range" and "fft2d_r2c_32x32" in fifth["name"]
    assert fifth["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"] == 86114304
    assert fifth["top_level_op"] == "aten::conv2d"
    assert fifth["bottom_level_op"] == "aten::cudnn_convolution"


def test_whole_microseconds_of_its_two_ranks(shared: Path) -> None:
    analysis = _open(shared, "trace_filter")
    right = hta_truth(shared)["hta_output"]["trace_filter"]
    busy = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    assert busy == right["temporal_breakdown"]
    overlap = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
    assert overlap == right["comm_comp_overlap"]


def test_its_frequent_sequence(shared: Path, tmp_path: Path) -> None:
    (right,) = hta_truth(shared)["hta_frequent_sequences"]["trace_diff/control|aten::linear"]["top"]
    analysis = _open(shared, "trace_diff/control")
    (rank,) = analysis._frames.ranks
    (row,) = analysis.get_frequent_cuda_kernel_sequences(
        "aten::linear", str(tmp_path), rank=rank
    ).to_dict("records")
    assert row["pattern"].startswith(right[0]) and row["count"] == right[1]
    assert row["GPU kernel duration (us)"] == right[2]
    assert row["CPU op duration (us)"] == right[3]


def test_several_recordings_of_a_rank_are_not_mixed(tmp_path: Path) -> None:
    """HTA knows one file of a rank; three kernels of 10 us in one cycle, one of 50 in the other."""
    for rank in (0, 1):
        for cycle in (0, 1):
            if (rank, cycle) == (1, 0):
                continue  # missed
            count, length = ((1, 50), (3, 10))[cycle]
            events: list[Event] = [step(7 * cycle, 1e6 * cycle, 900)]
            for k in range(count):
                at = 1e6 * cycle + 100 * k
                correlation = 10 * cycle + k + 1
                events += [launch(correlation, at + 5), kernel("gemm", at + 9, length, correlation)]
            write(tmp_path / f"r{rank}c{cycle}.json", *events, **of_rank(rank, 2))
    with pytest.warns(UserWarning, match="look at cycle 1"):
        analysis = TraceAnalysis(trace_dir=str(tmp_path))
    times = analysis.get_temporal_breakdown(visualize=False)
    assert sorted(times["rank"]) == [0, 1]
    assert times["compute_time(us)"].tolist() == [30.0, 30.0]
    chosen = TraceAnalysis.of(htk.open(tmp_path).sel(cycles=[0]))
    assert chosen.get_temporal_breakdown(visualize=False)["compute_time(us)"].tolist() == [50.0]


def test_times_begin_with_the_first_event_but_the_profilers_span(tmp_path: Path) -> None:
    profiler = {**op("PyTorch Profiler (0)", 0, 200), "cat": "Trace"}
    call = launch(1, 101, 1)
    call["tid"] = 5
    write(
        tmp_path / "a.json",
        profiler,
        op("aten::mm", 100, 4),
        call,
        kernel("gemm", 104, 3, 1),
        **of_rank(0),
    )
    analysis = TraceAnalysis(trace_dir=str(tmp_path))
    series = analysis.get_queue_length_time_series()[0]
    assert series["ts"].tolist() == [1.0, 4.0]
    assert series.index.tolist() == [2, 3]  # rows of the file
    assert series.index.name == "index"
