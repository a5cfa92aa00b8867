"""What `htk simulate` writes: the same bytes again, and what htk finds in it is what is true."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import htk
from htk.base.errors import UsageError
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.groups import process_groups
from htk.recording.simulate.job import simulate_job
from htk.recording.simulate.job_file import from_toml
from htk.recording.simulate.program import build_programs
from htk.recording.simulate.schedule import Schedule
from tests.htk.recording.simulate.simulated_trace import written
from tests.thinned import thinned

TINY = Config(model="gpt3-126m", layers=2, seq=128, nodes=1, gpus_per_node=2, steps=2)
ODD = replace(TINY, nodes=2, micro_batch=2, carry_in=3, heavy_tails=True, seed=5)
FIGURES = (
    "total_ns",
    "busy_ns",
    "idle_ns",
    "compute_ns",
    "comm_ns",
    "memory_ns",
    "exposed_comm_ns",
    "exposed_memory_ns",
)
# Links so slow that a collective runs when some rank begins to record.
APART: dict[str, Any] = {"stagger_us": 20_000.0, "strategy": "ddp", "inter_gbps": 20.0}
KINDS = {
    "ddp": replace(TINY, strategy="ddp", accumulation=2),
    "shard_grad_op": replace(TINY, strategy="shard_grad_op", fsdp=1),
    "full_shard": replace(TINY, checkpointing=True, sync_records=False),
    "hybrid_shard": replace(ODD, strategy="hybrid_shard"),
    "tensor": replace(ODD, tensor_parallel=2),
    "amd": replace(ODD, gpu="mi300x", metadata=False),
    "cut": replace(TINY, steps=3, cut_last_step=True),
    "short_queue": replace(TINY, queue=20),
    "graphs": replace(TINY, graphs=True),
    "graphs_again": replace(TINY, graphs=True, checkpointing=True, strategy="ddp"),
    "staggered": replace(ODD, stagger_us=20_000.0),
    "synchronous": replace(ODD, synchronous=True),
    "single": replace(TINY, precision="fp32"),
    "programmatic": replace(ODD, gpu="b200", programmatic=True),
}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        simulate_job(check_config(ODD), tmp_path / name)
    simulate_job(check_config(replace(ODD, seed=6)), tmp_path / "c")
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(files) == 5
    for name in files:
        a, b, c = ((tmp_path / folder / name).read_bytes() for folder in "abc")
        assert a == b != c


@pytest.mark.parametrize("config", thinned(KINDS.values()), ids=KINDS)
def test_times_of_steps_are_the_true_ones(config: Config, tmp_path: Path) -> None:
    trace, truth = written(config, tmp_path)
    true = {(r["rank"], s["step"]): s for r in truth["ranks"] for s in r["steps"]}
    found = trace.time_breakdown(per="step").to_pylist()
    assert len(found) == len(true)
    for row in found:
        step = true[row["rank"], row["step"]]
        assert {k: row[k] for k in FIGURES} == {k: step[k] for k in FIGURES}
    for row in trace.comm_compute_overlap(per="step").to_pylist():
        assert row["overlap_ns"] == true[row["rank"], row["step"]]["overlap_ns"]


@pytest.mark.parametrize("config", [KINDS["hybrid_shard"], KINDS["tensor"]], ids=["hybrid", "tp"])
def test_waits_of_collectives_are_the_true_ones(config: Config, tmp_path: Path) -> None:
    trace, truth = written(config, tmp_path)
    true = {
        (rank, c["group"], c["seq"]): (c["type"], c["wait_ns"][k], c["transfer_ns"][k])
        for c in truth["collectives"]
        for k, rank in enumerate(c["ranks"])
    }
    found = {
        (r["rank"], r["group"], r["seq"]): (r["type"], r["wait_ns"], r["transfer_ns"])
        for r in trace.collective_times().to_pylist()
    }
    assert found == true


def test_windows_that_begin_apart_cut_collectives(tmp_path: Path) -> None:
    """What a rank recorded is as long as it was, and it is said where another one was too late."""
    trace, truth = written(replace(ODD, **APART), tmp_path)
    began = [r["window_start_ns"] for r in truth["ranks"]]
    assert max(began) - min(began) > 1_000_000
    cut = [c for c in truth["collectives"] if c["before_window"]]
    assert cut and all(c["step"] == ODD.first_step - 1 for c in cut)
    assert all(len(c["ranks"]) < c["group_size"] for c in cut)
    assert all(r["carry_in_ns"] > 0 for r in truth["ranks"])
    whole = {(c["group"], c["seq"]) for c in truth["collectives"] if not c["before_window"]}
    rows = trace.collective_times().to_pylist()
    found = {(r["rank"], r["group"], r["seq"]): r["wait_ns"] for r in rows}
    for one in truth["collectives"]:
        if (one["group"], one["seq"]) in whole:
            for rank, wait in zip(one["ranks"], one["wait_ns"], strict=True):
                assert found[rank, one["group"], one["seq"]] == wait
    assert {(r["group"], r["seq"]) for r in rows} == whole | {(c["group"], c["seq"]) for c in cut}


def test_collectives_end_together_and_late_ranks_wait_for_nobody(tmp_path: Path) -> None:
    _, truth = written(ODD, tmp_path)
    for one in truth["collectives"]:
        assert max(one["end_ns"]) - min(one["end_ns"]) <= ODD.jitter_ns
        assert min(one["wait_ns"]) == 0


def test_carried_in_work_is_busy_and_belongs_to_no_step(tmp_path: Path) -> None:
    trace, truth = written(ODD, tmp_path)
    assert truth["ranks"][0]["carry_in_ns"] == 3 * 180_000
    assert trace.time_breakdown().coverage["carry_in_activities"] == 3 * ODD.ranks


def test_a_missing_rank_is_missed(tmp_path: Path) -> None:
    trace, truth = written(replace(TINY, plants=("missing_rank",)), tmp_path)
    assert truth["planted"] == [{"plant": "missing_rank", "rank": 1}]
    assert trace.time_breakdown().coverage["missing_ranks"] == [1]


def test_an_unlinked_launch_is_counted(tmp_path: Path) -> None:
    trace, _ = written(replace(TINY, plants=("unlinked_launch",)), tmp_path)
    assert trace.time_breakdown().coverage["unlinked_activities"] == 1


def test_a_straggler_makes_the_others_wait(tmp_path: Path) -> None:
    planted = replace(TINY, seq=1024, gpus_per_node=4, plants=("straggler",))
    trace, truth = written(planted, tmp_path)
    waits = {r["rank"]: r["wait_ns"] for r in trace.comm_wait().to_pylist()}
    assert min(waits, key=waits.__getitem__) == truth["planted"][0]["rank"]


def test_a_stall_of_data_lengthens_its_step(tmp_path: Path) -> None:
    _, calm = written(TINY, tmp_path / "calm")
    _, truth = written(replace(TINY, plants=("data_stall",)), tmp_path / "stalled")
    stall = truth["planted"][0]
    its, usual = truth["ranks"][stall["rank"]], calm["ranks"][stall["rank"]]
    longer = [
        a["total_ns"] - b["total_ns"] for a, b in zip(its["steps"], usual["steps"], strict=True)
    ]
    assert [step["step"] for step in its["steps"]][1] == stall["step"]
    assert longer[0] == 0
    assert longer[1] == pytest.approx(stall["ns"], rel=0.05)


def test_where_and_how_much_is_planted_may_be_given(tmp_path: Path) -> None:
    plants = ("straggler:rank=1,factor=2", "data_stall:rank=0,step=11,ms=30", "missing_rank:rank=2")
    _, truth = written(replace(TINY, gpus_per_node=4, plants=plants), tmp_path)
    assert truth["planted"] == [
        {"plant": "straggler", "rank": 1, "factor": 2.0},
        {"plant": "data_stall", "rank": 0, "step": 11, "ns": 30_000_000},
        {"plant": "missing_rank", "rank": 2},
    ]
    compute = {r["rank"]: r["steps"][0]["compute_ns"] for r in truth["ranks"]}
    assert set(compute) == {0, 1, 3}
    assert compute[1] > 1.5 * compute[0]
    loading = [r["steps"][1]["idle_by_cause_ns"]["host_data_loading"] for r in truth["ranks"]]
    assert loading[0] > 25_000_000 > max(loading[1:])


@pytest.mark.parametrize(
    "plant",
    ["nothing", "straggler:rnk=1", "straggler:rank=two", "straggler:rank=9", "data_stall:step=3"],
)
def test_what_cannot_be_planted_is_refused(plant: str) -> None:
    with pytest.raises(UsageError):
        check_config(replace(TINY, plants=(plant,)))


def test_a_slow_link_shows_in_the_bandwidth_of_its_groups(tmp_path: Path) -> None:
    """A tensor-parallel pair on each of two nodes: what leaves a node is slow, and nothing else."""
    given = replace(TINY, nodes=2, gpus_per_node=2, tensor_parallel=2, micro_batch=4, seq=512)

    def speeds(plants: tuple[str, ...], folder: Path) -> dict[str, float]:
        trace, truth = written(replace(given, plants=plants), folder)
        spans = {c["group"]: len({r // 2 for r in c["ranks"]}) for c in truth["collectives"]}
        rows = trace.comm_summary(by="group").to_pylist()
        return {
            f"{spans[r['group']]} {r['type']}": r["busbw_gbps_p50"]
            for r in rows
            if r["type"] != "all_reduce" or spans[r["group"]] == 1
        }

    calm, slow = speeds((), tmp_path / "a"), speeds(("slow_link",), tmp_path / "b")
    assert calm.keys() == slow.keys() == {"1 all_reduce", "2 all_gather", "2 reduce_scatter"}
    for key, speed in calm.items():
        assert speed / slow[key] == pytest.approx(2.5 if key[0] == "2" else 1.0, rel=0.1), key


def test_a_step_bound_by_the_host_is_idle_for_the_host(tmp_path: Path) -> None:
    trace, truth = written(replace(TINY, steps=3, seq=512, plants=("cpu_bound",)), tmp_path)
    planted = truth["planted"][0]
    idle: dict[tuple[int, int], int] = {}
    for row in trace.idle_breakdown(per="step").to_pylist():
        if row["cause"].startswith("host"):
            key = row["rank"], row["step"]
            idle[key] = idle.get(key, 0) + row["idle_ns"]
    (there,) = (k for k in idle if k == (planted["rank"], planted["step"]))
    usual = [ns for (rank, step), ns in idle.items() if step != planted["step"]]
    assert idle[there] > 3 * max(usual)
    rows = trace.recommendations().to_pylist()
    assert "host" in json.dumps(rows[0]).lower() or "launch" in json.dumps(rows[0]).lower()


def test_a_regressed_kernel_takes_longer_from_its_step_on(tmp_path: Path) -> None:
    _, truth = written(replace(TINY, seq=1024, plants=("regressed_kernel",)), tmp_path)
    planted = truth["planted"][0]
    before, after = truth["ranks"][0]["steps"]
    name = next(n for n in before["kernels"] if planted["name"] in n)
    ratio = after["kernels"][name]["total_ns"] / before["kernels"][name]["total_ns"]
    assert ratio == pytest.approx(planted["factor"], rel=0.05)


def test_clocks_apart_shift_a_hosts_ranks(tmp_path: Path) -> None:
    _, truth = written(replace(ODD, plants=("clock_offset",)), tmp_path)
    assert [r["clock_offset_ns"] for r in truth["ranks"]] == [0, 0, 2_500_000, 2_500_000]


def test_only_some_ranks_are_written(tmp_path: Path) -> None:
    config = replace(TINY, nodes=16, gpus_per_node=8, ranks_only=(0, 9))
    trace, truth = written(config, tmp_path)
    assert trace.time_breakdown().coverage["files_unread"] == 0  # the sidecar is ours
    assert [r["rank"] for r in truth["ranks"]] == [0, 9]
    assert trace.time_breakdown().coverage["world_size"] == 128


def test_only_what_is_written_is_kept(tmp_path: Path) -> None:
    """Of a large job most ranks are timed and forgotten."""
    config = replace(TINY, nodes=16, gpus_per_node=8, ranks_only=(0, 9))
    schedule = Schedule(config, build_programs(config), process_groups(config))
    (timed,), whole = schedule.step(10), replace(config, ranks_only=None)
    assert timed.gpu_start.shape == (len(timed.program.do), 2)
    (every,) = Schedule(whole, build_programs(whole), process_groups(whole)).step(10)
    assert (every.gpu_start[:, [0, 9]] == timed.gpu_start).all()


def test_options_come_from_a_file_and_those_of_the_command_win(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('model = "gpt3-126m"\nlayers = 2\nsteps = 5\nplants = ["straggler:factor=2"]\n')
    found = from_toml(file, steps=1)
    assert (found.layers, found.steps, found.plants) == (2, 1, ("straggler:factor=2",))
    file.write_text('model = "gpt3-126m"\nlayer = 2\n')
    with pytest.raises(UsageError, match="layer"):
        from_toml(file)


def test_the_wire_carries_what_the_ledger_says(tmp_path: Path) -> None:
    _, truth = written(replace(TINY, nodes=2), tmp_path)
    told = truth["ledger"]
    wire = truth["ranks"][0]["steps"][0]["wire_bytes"]
    assert wire == pytest.approx(told["gather_wire"] + told["reduce_wire"], rel=1e-6)


def test_the_sample_that_comes_with_htk_is_what_the_simulator_makes(tmp_path: Path) -> None:
    sample = Path(htk.__file__).parent / "traces/sample"
    truth = json.loads((sample / "truth.json").read_text())
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in truth["config"].items()}
    simulate_job(check_config(Config(**given)), tmp_path)
    assert json.loads((tmp_path / "truth.json").read_text()) == truth
    for path in sample.glob("*.gz"):
        made = gzip.decompress((tmp_path / path.name).read_bytes())
        assert made == gzip.decompress(path.read_bytes())


@pytest.mark.parametrize(("strategy", "whole"), [("shard_grad_op", 3), ("full_shard", 1)])
def test_memory_by_hand(tmp_path: Path, strategy: str, whole: int) -> None:
    """Three units of two GPUs: two layers, and what is beside them. At the end of the forward pass
    SHARD_GRAD_OP holds all of them whole, full sharding what is beside the layers, with the logits;
    16 bytes a parameter are spread, gradients of two layers have their buffers.
    """
    job = replace(TINY, strategy=strategy)
    layer, beside = 12 * 768**2 + 13 * 768, (51200 + 2048 + 2) * 768
    assert (job.decoder.layer_parameters, job.decoder.root_parameters) == (layer, beside)
    simulate_job(job, tmp_path)
    told = json.loads((tmp_path / "truth.json").read_text())["ranks"][0]["peak_allocated_bytes"]
    resident = 16 * (2 * layer + beside) // 2 + 2 * 2 * layer
    gathered = 2 * ((whole - 1) * layer + beside)
    activations = 2 * 34 * 128 * 768
    logits = 14 * 128 * 51200
    assert told == resident + gathered + activations + logits
