"""What is planted, what starts up, whose clocks differ: in the files and in truth.json."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.job import simulate_job
from htk.recording.simulate.plants import Plants
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.whatif.baseline import build_baseline
from htk.whatif.predict import predict_answer
from tests.htk.recording.simulate.reading import read

SMALL = Config(
    model="own", layers=2, hidden=256, heads=4, kv_heads=2, ffn=512, vocab=1000, seq=128,
    nodes=2, gpus_per_node=2, micro_batch=8, steps=3, seed=4,
)  # fmt: skip
Event = dict[str, Any]


def truth_of(config: Config, folder: Path) -> dict[str, Any]:
    simulate_job(check_config(config), folder)
    truth: dict[str, Any] = json.loads((folder / "truth.json").read_text())
    return truth


def file_of(folder: Path, rank: int = 0) -> dict[str, Any]:
    text = gzip.decompress((folder / f"rank{rank}.pt.trace.json.gz").read_bytes())
    trace: dict[str, Any] = json.loads(text)
    return trace


def calls_of(folder: Path, rank: int = 0) -> Counter[str]:
    events = file_of(folder, rank)["traceEvents"]
    return Counter(e["name"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver"))


@pytest.mark.parametrize(("clocks", "equal"), [("node", True), ("process", False)])
def test_a_node_has_one_clock_or_each_process_its_own(
    clocks: str, equal: bool, tmp_path: Path
) -> None:
    config = replace(SMALL, clocks=clocks, clock_offset_us=500.0, clock_drift_ppm=10.0)
    ranks = truth_of(config, tmp_path)["ranks"]
    assert [r["host"] for r in ranks] == ["node-0", "node-0", "node-1", "node-1"]
    for key in ("clock_offset_ns", "clock_drift_ppm"):
        first, second, other, _ = (r[key] for r in ranks)
        assert (first == second) is equal
        assert other not in (first, second)


def test_names_of_hosts_may_be_unrecorded(tmp_path: Path) -> None:
    truth_of(SMALL, tmp_path / "a")
    assert file_of(tmp_path / "a", 3)["host_name"] == "node-1"
    truth_of(replace(SMALL, host_names=False), tmp_path / "b")
    assert "host_name" not in file_of(tmp_path / "b", 3)


def test_another_run_is_the_same_cluster_with_other_chance(tmp_path: Path) -> None:
    """Each GPU keeps its speed; clocks and what is planted stay."""
    config = replace(
        SMALL, gpus_per_node=4, noise=0.06, steps=6, clock_offset_us=100.0, plants=("slow_link",)
    )
    one, two = (truth_of(replace(config, run=k), tmp_path / str(k)) for k in (1, 2))
    assert one["planted"] == two["planted"]
    offsets = [[r["clock_offset_ns"] for r in job["ranks"]] for job in (one, two)]
    assert offsets[0] == offsets[1]
    speed = np.array(
        [[sum(s["compute_ns"] for s in r["steps"]) for r in job["ranks"]] for job in (one, two)]
    )
    assert (speed[0] != speed[1]).all()
    assert np.corrcoef(speed)[0, 1] > 0.8


def test_the_start_of_a_job_loads_and_creates(tmp_path: Path) -> None:
    truth = truth_of(replace(SMALL, first_step=0), tmp_path)
    calls = calls_of(tmp_path)
    assert calls["cudaFree"] == calls["cuLibraryLoadData"] == 1
    assert calls["cudaStreamCreateWithPriority"] == 3  # copy-in, all-gather, reduce-scatter
    assert calls["cudaMalloc"] > 5
    trace = file_of(tmp_path)
    kernels = {e["name"] for e in trace["traceEvents"] if e.get("cat") == "kernel"}
    loaded = Counter(e["name"] for e in trace["traceEvents"] if e.get("cat") == "overhead")
    assert loaded == {"Lazy Function Loading": len(kernels), "Runtime Triggered Module Loading": 1}
    for rank in truth["ranks"]:
        first, second, _ = rank["steps"]
        assert rank["start_up_ns"] > 80_000_000
        assert first["idle_by_cause_ns"]["host_start_up"] > 5_000_000
        assert second["idle_by_cause_ns"]["host_start_up"] == 0
        assert first["total_ns"] > 3 * second["total_ns"]
    seen = read(tmp_path / "rank1.pt.trace.json.gz")["steps"][0]
    assert seen["idle_ns"] == sum(truth["ranks"][1]["steps"][0]["idle_by_cause_ns"].values())


def test_nothing_runs_before_the_start_of_a_job() -> None:
    with pytest.raises(UsageError, match="step 0"):
        check_config(replace(SMALL, first_step=0, carry_in=2))


def test_a_full_allocator_gives_blocks_back_and_takes_others(tmp_path: Path) -> None:
    plant = "full_allocator:rank=1,step=11,times=2,ms=5"
    truth = truth_of(replace(SMALL, noise=0.0, plants=(plant,)), tmp_path)
    assert truth["planted"] == [
        {"plant": "full_allocator", "from_step": 11, "times_per_step": 2, "ns": 5_000_000,
         "rank": 1}
    ]  # fmt: skip
    calls = calls_of(tmp_path, 1)
    assert (calls["cudaMalloc"], calls["cudaFree"]) == (2 * 2 * 2, 2 * 2 * 3)
    assert not calls_of(tmp_path, 0) & Counter(["cudaMalloc", "cudaFree"])
    idle = [[s["idle_by_cause_ns"]["host_allocation"] for s in r["steps"]] for r in truth["ranks"]]
    assert idle[0] == idle[2] == [0, 0, 0]
    assert idle[1][0] == 0 and min(idle[1][1:]) > 5_000_000
    memory = [e["args"] for e in file_of(tmp_path, 1)["traceEvents"] if e["name"] == "[memory]"]
    there = check_config(SMALL).device.memory_gb * 1e9
    assert all(0.95 < m["Total Reserved"] / there < 1 for m in memory)


def test_giving_blocks_back_waits_for_the_gpu(tmp_path: Path) -> None:
    """The first cudaFree of a retry returns once everything launched before it has run."""
    plants = ("full_allocator:times=2",)
    truth_of(replace(SMALL, micro_batch=256, noise=0.0, plants=plants), tmp_path)
    events = file_of(tmp_path)["traceEvents"]
    launched = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}
    frees = [e for e in events if e["name"] == "cudaFree"][::3]
    assert len(frees) == 6
    for free in frees:
        before = [
            e["ts"] + e["dur"]
            for e in events
            if e.get("cat") in ("kernel", "gpu_memcpy")
            and launched[e["args"]["correlation"]] < free["ts"]
        ]
        assert max(before) <= free["ts"] + free["dur"]


def test_a_starved_loader_is_late_in_every_step(tmp_path: Path) -> None:
    truth = truth_of(replace(SMALL, plants=("starved_loader:ms=30",)), tmp_path)
    assert truth["planted"] == [{"plant": "starved_loader", "from_step": 10, "ns": 30_000_000}]
    for rank in truth["ranks"]:
        later = [s["idle_by_cause_ns"]["host_data_loading"] for s in rank["steps"][1:]]
        assert min(later) > 25_000_000


def test_a_straggler_may_be_a_node_or_rotate(tmp_path: Path) -> None:
    def slowest(plant: str) -> list[list[int]]:
        config = replace(SMALL, noise=0.0, contention=False, plants=(plant,))
        ranks = truth_of(config, tmp_path / plant[-8:])["ranks"]
        compute = np.array([[s["compute_ns"] for s in r["steps"]] for r in ranks])
        slow = compute > 1.1 * compute.min(axis=0)
        return [np.flatnonzero(column).tolist() for column in slow.T]

    assert slowest("straggler:node=1,factor=1.5") == [[2, 3]] * 3
    assert slowest("straggler:rotate=1,rank=3,factor=1.5") == [[3], [0], [1]]


@pytest.mark.parametrize(
    ("plant", "slow"),
    [
        ("slow_link:node=1", [0, 1, 2, 3]),
        ("slow_link:node=1,nic=1", [2, 3]),
        ("slow_link:node=1,to=2", [0, 1, 2, 3]),
        ("slow_link:node=1,to=3,nic=0", []),
    ],
)
def test_a_slow_link_slows_the_groups_that_use_it(plant: str, slow: list[int]) -> None:
    """Four nodes of two GPUs; replicas of each GPU's parameters reduce in a ring 0, 1, 2, 3. With
    tensor parallelism four rings run through each adapter's node."""
    config = check_config(replace(SMALL, nodes=4, gpus_per_node=4, strategy="hybrid_shard"))
    config = replace(config, tensor_parallel=2, plants=(plant.replace("nic=1", "nic=2"),))
    groups = process_groups(config)
    plants = Plants(config)
    assert (plants.link_factor(groups["shard"]) == 1).all()
    factor = plants.link_factor(groups["replicate"])
    rings = [members[0] % 4 for members in groups["replicate"].members]
    expected = {"slow_link:node=1,nic=1": {2}}.get(plant, set(slow))
    assert {ring for ring, f in zip(rings, factor, strict=True) if f > 1} == expected
    names = {n for n, f in zip(groups["replicate"].names, factor, strict=True) if f > 1}
    (described,) = plants.described(groups)
    assert names <= set(described["groups"])


def test_a_kernel_may_become_slow_by_name_on_one_rank(tmp_path: Path) -> None:
    plant = "regressed_kernel:name=flash_fwd,rank=1,step=11,factor=2"
    truth = truth_of(replace(SMALL, noise=0.0, contention=False, plants=(plant,)), tmp_path)
    facts = {"name": "flash_fwd", "from_step": 11, "factor": 2.0, "rank": 1}
    assert truth["planted"] == [{"plant": "regressed_kernel", **facts}]

    def flash(rank: int) -> list[int]:
        steps = truth["ranks"][rank]["steps"]
        return [next(k for n, k in s["kernels"].items() if "flash_fwd" in n)["total_ns"]
                for s in steps]  # fmt: skip

    usual, slow = flash(0), flash(1)
    assert usual[0] == usual[1] == usual[2] == slow[0]
    assert slow[1] == slow[2] == pytest.approx(2 * usual[0], abs=10)


def test_a_kernel_that_is_not_there_cannot_become_slow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kernel"):
        simulate_job(check_config(replace(SMALL, plants=("regressed_kernel:name=conv",))), tmp_path)


def test_unnamed_groups_are_as_before_pytorch_2_3(tmp_path: Path) -> None:
    truth_of(replace(SMALL, named_groups=False), tmp_path)
    trace = file_of(tmp_path)
    assert "pg_config" not in trace["distributedInfo"]
    named = [e["args"] for e in trace["traceEvents"] if "Collective name" in e.get("args", {})]
    assert named and all("Process Group Name" not in a and "Seq" not in a for a in named)
    assert {a["Group size"] for a in named} == {4}


def test_modules_hold_their_operators_of_both_passes(tmp_path: Path) -> None:
    simulate_job(check_config(replace(SMALL, ranks_only=(0,))), tmp_path)
    trace = open_trace(tmp_path, options=OpenOptions(cache=False))
    rows = {r["module"]: r for r in ask_trace(trace, "module_breakdown", n=0).to_pylist()}
    model = "FSDPLlamaForCausalLM_0"
    layers = [f"{model}.FSDPLlamaDecoderLayer_{k}" for k in (0, 1)]
    linear = [n.rpartition(".")[2] for n in rows if n and ".Linear_" in n]
    assert sorted(linear, key=lambda n: int(n[7:])) == [f"Linear_{k}" for k in range(15)]
    norms = [n for n in rows if n and n.rpartition(".")[2].startswith("LlamaRMSNorm_")]
    assert sorted(n.rpartition(".")[0] for n in norms) == sorted([*layers, *layers, model])
    for name in norms:  # four passes over memory, and each one's gradient
        assert (rows[name]["count"], rows[name]["kernels"]) == (3, 3 * 8)
        assert 0 < rows[name]["backward_device_ns"] < rows[name]["device_total_ns"]


def test_a_module_can_be_made_faster(tmp_path: Path) -> None:
    """Five norms in a step of four passes each, and their gradients."""
    simulate_job(check_config(SMALL), tmp_path)
    recorded = build_baseline(open_trace(tmp_path, options=OpenOptions(cache=False)).tables)
    answer = predict_answer(recorded, [("replace", "RMSNorm=2x")])
    assert any(text.startswith(f"{4 * 5 * 8} activities") for text in answer.assumptions), (
        answer.assumptions
    )


def test_stacks_are_all_that_a_recording_without_them_lacks(tmp_path: Path) -> None:
    def names(stacks: bool) -> Counter[tuple[str, str]]:
        folder = tmp_path / str(stacks)
        truth_of(replace(SMALL, stacks=stacks, noise=0.0), folder)
        events = file_of(folder)["traceEvents"]
        return Counter((e["cat"], e["name"]) for e in events if e["ph"] == "X")

    more = names(True) - names(False)
    assert not names(False) - names(True)
    assert {category for category, _ in more} == {"python_function"}
