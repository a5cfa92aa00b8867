"""Each switch changes what it says and nothing else."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import OpenOptions, open_trace

GPU = ("kernel", "gpu_memcpy")
Event = dict[str, Any]


@pytest.fixture
def events(tmp_path: Path) -> Any:
    """Complete events of rank 1 of two, with what is switched as given."""

    def made(**switched: Any) -> list[Event]:
        given: dict[str, Any] = dict(
            model="own", layers=2, hidden=256, heads=4, kv_heads=2, ffn=512, vocab=1000,
            gpus_per_node=2, micro_batch=2, seq=128, steps=2, noise=0.0, contention=False,
            jitter_ns=0,
        )  # fmt: skip
        simulate_job(check_config(Config(**given | switched)), tmp_path)
        text = gzip.decompress((tmp_path / "rank1.pt.trace.json.gz").read_bytes())
        trace = json.loads(text, parse_float=Decimal)
        return [e for e in trace["traceEvents"] if e["ph"] == "X"]

    return made


def of(events: list[Event], *categories: str) -> list[Event]:
    return [e for e in events if e["cat"] in categories]


def durations(events: list[Event]) -> list[tuple[str, Decimal]]:
    return [(e["name"], e["dur"]) for e in of(events, *GPU) if "nccl" not in e["name"]]


def launch_times(events: list[Event]) -> list[Decimal]:
    return [e["dur"] for e in of(events, "cuda_runtime") if e["name"] == "cudaLaunchKernel"]


def computing(events: list[Event]) -> list[tuple[Decimal, Decimal]]:
    """Begin and end of what runs on the compute stream."""
    ours = (e for e in of(events, *GPU) if e["tid"] == 7)
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in ours)


def times(events: list[Event]) -> list[tuple[str, Decimal, Decimal]]:
    return [(e["name"], e["ts"], e["dur"]) for e in events]


def test_without_noise_a_kernel_takes_the_same_in_each_step(events: Any) -> None:
    calm = durations(events())
    half = len(calm) // 2
    assert calm[:half] == calm[half:]


def test_records_of_synchronisation_are_all_that_goes(events: Any) -> None:
    whole, without = events(), events(sync_records=False)
    assert of(whole, "cuda_sync")
    assert not of(without, "cuda_sync", "cuda_event")
    told = [e for e in whole if e["cat"] not in ("cuda_sync", "cuda_event")]
    assert times(told) == times(without)


def test_metadata_goes_from_kernels_and_times_stay(events: Any) -> None:
    whole, without = events(), events(metadata=False)
    assert times(whole) == times(without)
    named = [e for e in of(whole, "kernel") if "nccl" in e["name"]]
    assert all("Process Group Name" in e["args"] for e in named)
    assert not any("Process Group Name" in e["args"] for e in of(without, "kernel"))


def test_clocks_apart_move_all_of_a_rank_alike(events: Any) -> None:
    true, off = times(events()), times(events(clock_offset_us=500.0))
    assert len({b - a for (_, a, _), (_, b, _) in zip(true, off, strict=True)} - {0}) == 1
    assert [d for _, _, d in true][:-1] == [d for _, _, d in off][:-1]  # the last is the span


def test_recording_costs_the_host_and_not_the_gpu(events: Any) -> None:
    free, costly = events(profiler_ns=0), events(profiler_ns=2000)
    assert durations(free) == durations(costly)
    opened = sum(e["dur"] for e in of(free, "cuda_runtime"))
    assert sum(e["dur"] for e in of(costly, "cuda_runtime")) > opened


def test_contention_only_lengthens(events: Any) -> None:
    slow = {"intra_gbps": 10.0}  # so that both kinds run at once
    alone, shared = durations(events(**slow)), durations(events(**slow, contention=True))
    assert [n for n, _ in alone] == [n for n, _ in shared]
    assert all(a <= b for (_, a), (_, b) in zip(alone, shared, strict=True))
    assert alone != shared


def test_a_short_queue_holds_the_host_back(events: Any) -> None:
    free, held = events(micro_batch=64), events(micro_batch=64, queue=4)
    assert durations(free) == durations(held)
    longest = [max(launch_times(es)) for es in (free, held)]
    assert longest[1] > 5 * longest[0]


def test_graphs_launch_the_same_kernels_with_fewer_calls(events: Any) -> None:
    eager, captured = events(), events(graphs=True)
    assert Counter(n for n, _ in durations(eager)) == Counter(n for n, _ in durations(captured))
    calls = [Counter(e["name"] for e in of(es, "cuda_runtime")) for es in (eager, captured)]
    assert calls[1]["cudaGraphLaunch"] > 0 and calls[1].total() < calls[0].total()


def test_graphs_are_of_both_passes_and_each_has_its_number(events: Any) -> None:
    nodes = [e["args"] for e in of(events(graphs=True), "kernel") if e["args"]["graph id"]]
    assert {a["graph id"] for a in nodes} == {1, 2, 3, 4}  # two layers, forward and backward
    of_one = [a["graph node id"] for a in nodes if a["graph id"] == 2]
    assert of_one == [*range(1, len(of_one) // 2 + 1)] * 2  # two steps


def test_synchronous_collectives_run_on_the_compute_stream(events: Any) -> None:
    def streams(es: list[Event]) -> set[int]:
        return {e["tid"] for e in of(es, "kernel") if "nccl" in e["name"]}

    for strategy, fsdp in (("full_shard", 2), ("full_shard", 1), ("ddp", 2)):
        aside, alone = (
            events(strategy=strategy, fsdp=fsdp),
            events(strategy=strategy, fsdp=fsdp, synchronous=True),
        )
        assert 7 not in streams(aside) and streams(alone) == {7}
        ours = computing(alone)
        assert all(a[1] <= b[0] for a, b in pairwise(ours))


def test_precision_is_that_of_the_tensors(events: Any) -> None:
    def types(es: list[Event]) -> set[str]:
        (linear, *_) = (e for e in es if e["name"] == "aten::linear")
        return {t for t in linear["args"]["Input type"] if t}

    assert types(events()) == {"c10::BFloat16"}
    assert types(events(precision="fp32")) == {"float"}


def test_what_runs_beside_each_other_is_slower_on_both_sides(events: Any, tmp_path: Path) -> None:
    """Against the same without contention: both kinds take longer where they overlap."""

    def moving() -> list[int]:
        truth = json.loads((tmp_path / "truth.json").read_text())
        return [c["transfer_ns"][0] for c in truth["collectives"]]

    slow = {"intra_gbps": 10.0, "micro_batch": 64}
    alone, moved_alone = of(events(**slow), *GPU), moving()
    shared, moved = of(events(**slow, contention=True), *GPU), moving()
    comm = [e for e in shared if "nccl" in e["name"]]
    slower = []
    for one, two in zip(alone, shared, strict=True):
        if two["cat"] == "kernel" and "nccl" not in two["name"]:
            beside = sum(covered(two, e) for e in comm) / two["dur"]
            growth = float(two["dur"] / one["dur"])
            assert beside > 0 or growth < 1.03, two["name"]
            slower += [growth] if beside > Decimal("0.95") else []
    assert slower and min(slower) > 1.05
    growth_of_comm = [b / a for a, b in zip(moved_alone, moved, strict=True)]
    assert min(growth_of_comm) >= 1 and max(growth_of_comm) > 1.03


def covered(one: Event, other: Event) -> Decimal:
    end = min(one["ts"] + one["dur"], other["ts"] + other["dur"])
    return max(Decimal(0), end - max(one["ts"], other["ts"]))


def test_hip_is_what_an_amd_gpu_is_called_with(events: Any) -> None:
    es = events(gpu="mi300x", graphs=True)
    names = {e["name"] for e in of(es, "cuda_runtime")}
    assert {"hipExtModuleLaunchKernel", "hipLaunchKernel", "hipGraphLaunch"} <= names
    assert not any(n.startswith("cuda") for n in names)
    assert not of(es, "cuda_sync", "cuda_event")
    assert {e["args"]["kind"] for e in of(es, "kernel")} == {"Dispatch Kernel"}


def test_events_fire_once_their_stream_has_come_to_them(events: Any) -> None:
    es = events()
    fired = {e["args"]["correlation"]: e for e in of(es, "cuda_event")}
    calls = [e for e in of(es, "cuda_runtime") if e["name"] == "cudaEventRecord"]
    assert {e["args"]["correlation"] for e in calls} == set(fired)
    assert all(fired[e["args"]["correlation"]]["ts"] > e["ts"] for e in calls)
    assert not of(events(sync_records=False), "cuda_event")


def test_operators_tell_shapes_strides_types_and_values(events: Any) -> None:
    for op in of(events(), "cpu_op"):
        args = op["args"]
        if "Input Dims" in args:
            columns = ("Concrete Inputs", "Input type", "Input Strides", "Input Dims")
            assert len({len(args[c]) for c in columns}) == 1, op
        if op["name"] == "record_param_comms":  # as c10d writes it
            values = args["Concrete Inputs"]
            assert values[1] == f"[{args['Seq']}, False]" and values[4] == args["Collective name"]
            assert values[-2] == str(args["Group size"])


def test_blocks_never_overlap_and_are_used_again(tmp_path: Path, events: Any) -> None:
    events()
    text = gzip.decompress((tmp_path / "rank1.pt.trace.json.gz").read_bytes())
    told = [e["args"] for e in json.loads(text)["traceEvents"] if e["name"] == "[memory]"]
    alive: dict[int, int] = {}
    for one in told:
        if one["Bytes"] < 0:
            assert alive.pop(one["Addr"]) == -one["Bytes"]
            continue
        end = one["Addr"] + one["Bytes"]
        assert all(end <= a or one["Addr"] >= a + size for a, size in alive.items())
        alive[one["Addr"]] = one["Bytes"]
        assert one["Total Allocated"] <= one["Total Reserved"]
    assert not alive
    taken = [one["Addr"] for one in told if one["Bytes"] > 0]
    assert len(set(taken)) < len(taken) / 2


def test_garbage_is_collected_now_and_then(tmp_path: Path) -> None:
    given: dict[str, Any] = dict(
        model="own", layers=1, hidden=64, heads=4, kv_heads=4, ffn=64, vocab=100,
        gpus_per_node=2, seq=8, steps=16, heavy_tails=True, stacks=False,
    )  # fmt: skip
    simulate_job(check_config(Config(**given)), tmp_path)
    truth = json.loads((tmp_path / "truth.json").read_text())
    idle = [s["idle_by_cause_ns"]["host_gc"] for s in truth["ranks"][0]["steps"]]
    assert 0 in idle and max(idle) > 30_000_000
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    calls = trace.tables["python_calls"].to_pylist()
    assert {c["name"] for c in calls} == {"Python GC"}
    assert {c["end_ns"] - c["start_ns"] for c in calls} == {40_000_000}
    found = {
        (r["rank"], r["step"]): r["idle_ns"]
        for r in ask_trace(trace, "idle_breakdown", per="step").to_pylist()
        if r["cause"] == "host_gc"
    }
    known = {
        (rank["rank"], step["step"]): step["idle_by_cause_ns"]["host_gc"]
        for rank in truth["ranks"]
        for step in rank["steps"]
    }
    assert found == {key: ns for key, ns in known.items() if ns}
    stalls = ask_trace(trace, "host_stalls").to_pylist()
    told = sum(s["host_ns"] for s in stalls if s["cause"] == "garbage collection")
    assert told == 40_000_000 * len(calls)


def test_programmatic_launches_overlap_neighbours(events: Any) -> None:
    def overlapping(es: list[Event]) -> int:
        return sum(b[0] < a[1] for a, b in pairwise(computing(es)))

    assert overlapping(events(micro_batch=64)) == 0
    assert overlapping(events(micro_batch=64, programmatic=True)) > 0


def test_amd_queues_back_to_back_one_nanosecond_apart(events: Any) -> None:
    ours = computing(events(gpu="mi300x", micro_batch=512, stacks=False))
    gaps = Counter(b[0] - a[1] for a, b in pairwise(ours))
    assert min(gaps) == Decimal("0.001") and gaps[Decimal("0.001")] > len(ours) // 3
