"""Each switch changes what it says and nothing else."""

import gzip
import json
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from htk.simulate.config import Config, checked
from htk.simulate.job import simulate

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
        simulate(checked(Config(**given | switched)), tmp_path)
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
    assert not of(without, "cuda_sync")
    assert times([e for e in whole if e["cat"] != "cuda_sync"]) == times(without)


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
    alone, shared = durations(events()), durations(events(contention=True, micro_batch=2))
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


def test_programmatic_launches_overlap_neighbours(events: Any) -> None:
    def overlapping(es: list[Event]) -> int:
        return sum(b[0] < a[1] for a, b in pairwise(computing(es)))

    assert overlapping(events(micro_batch=64)) == 0
    assert overlapping(events(micro_batch=64, programmatic=True)) > 0


def test_amd_queues_back_to_back_one_nanosecond_apart(events: Any) -> None:
    ours = computing(events(gpu="mi300x", micro_batch=64))
    gaps = Counter(b[0] - a[1] for a, b in pairwise(ours))
    assert min(gaps) == Decimal("0.001") and gaps[Decimal("0.001")] > len(ours) // 3
