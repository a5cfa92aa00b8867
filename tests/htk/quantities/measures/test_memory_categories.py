"""What memory is for: categories of blocks, recorded and inferred."""

from pathlib import Path

import pytest

from htk.analyses.memory.memory_peaks import memory_peaks
from htk.analyses.memory.memory_timeline import memory_timeline
from htk.answers.ask import ask_trace
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.opening import open_trace
from tests.memory_events import event
from tests.tables import answer_of, make


def test_categories_run_on_their_own() -> None:
    rows = [
        event(1, "a", 10, 10) | {"category": "parameter"},
        event(2, "b", 5, 15) | {"category": "activation"},
        event(3, "b", -5, 10) | {"category": "activation"},
        event(4, "c", 7, 17) | {"category": "parameter"},
    ]
    found = answer_of(
        memory_timeline, memory=make("memory", rows), options={"by": "category", "slices": 9}
    )
    assert [(r["category"], r["time_ns"], r["allocated_bytes"]) for r in found] == [
        ("parameter", 1, 10),
        ("parameter", 4, 17),
        ("activation", 2, 5),
        ("activation", 3, 0),
    ]


PHASES = [(100, "aten::mm"), (200, "autograd::engine::evaluate_function: MmBackward0"),
          (300, "_fused_adam_"), (400, "aten::mm")]  # fmt: skip


@pytest.mark.parametrize(
    ("born", "freed", "category"),
    [
        (220, 230, "temporary"),  # in the backward pass, gone before the optimizer
        (220, 299, "temporary"),
        (220, 390, "gradient"),
        (220, None, "gradient"),  # until the next pass, or kept
        (310, 350, "temporary"),  # in the optimizer
        (310, None, "optimizer_state"),
        (120, 199, "temporary"),  # in the forward pass, before the backward one
        (120, 250, "activation"),
    ],
)
def test_a_block_is_what_its_birth_and_death_say(
    born: int, freed: int | None, category: str
) -> None:
    rows = [event(born, "x", 64, 64), *([event(freed, "x", -64, 0)] if freed else [])]
    thread = {"process": "1", "thread": "1", "forward_thread": 0}
    ops = [{"name": n, "start_ns": t, "end_ns": t + 90, **thread} for t, n in PHASES]
    found = answer_of(
        memory_timeline,
        memory=make("memory", rows),
        cpu_ops=make("cpu_ops", ops),
        op_links=make("op_links", [{"depth": 0} for _ in ops]),
        options={"by": "category", "slices": 1},
    )
    assert {r["category"] for r in found if r["allocated_bytes"]} == {category}


def test_categories_are_inferred_from_phase_and_life() -> None:
    """A step of 300 and the forward of the next; each block with the times of its life."""
    lives = {
        "parameter": (10, None), "activation": (110, 210), "temporary": (120, 130),
        "gradient": (220, 410), "optimizer_state": (310, None), "unknown": (140, None),
    }  # fmt: skip
    rows = []
    for k, (born, freed) in enumerate(lives.values()):
        rows.append(event(born, f"x{k}", 1 << k, 0))
        rows += [event(freed, f"x{k}", -(1 << k), 0)] if freed else []
    total = 0
    for row in sorted(rows, key=lambda r: r["time_ns"]):
        total += row["size_bytes"]
        row["allocated_bytes"] = total
    thread = {"process": "1", "thread": "1", "forward_thread": 0}
    ops = [{"name": n, "start_ns": t, "end_ns": t + 90, **thread} for t, n in PHASES]
    tables = {
        "memory": make("memory", rows),
        "cpu_ops": make("cpu_ops", ops),
        "op_links": make("op_links", [{"depth": 0} for _ in ops]),
    }
    found = answer_of(memory_timeline, **tables, options={"by": "category", "slices": 1})
    highest = {}
    for row in found:
        highest[row["category"]] = max(row["allocated_bytes"], highest.get(row["category"], 0))
    assert highest == {name: 1 << k for k, name in enumerate(lives)}
    assert all(r["inferred"] for r in found)
    held = answer_of(memory_peaks, **tables, options={"by": "category"})
    at_peak = {"parameter", "gradient", "optimizer_state", "unknown"}
    assert {r["holder"] for r in held} == at_peak and held[0]["peak_ns"] == 310


def test_activations_of_a_simulated_job(tmp_path: Path) -> None:
    """What each layer keeps for backward; the rest was there before, or is one gathered unit."""
    job = check_config(Config(model="own", layers=4, hidden=512, heads=8, kv_heads=8, ffn=2048,
                         vocab=1000, seq=512, steps=2, nodes=1, gpus_per_node=2,
                         strategy="full_shard"))  # fmt: skip
    simulate_job(job, tmp_path)
    trace = open_trace(tmp_path).sel(ranks=[0])
    rows = ask_trace(trace, "memory_peaks", by="category").to_pylist()
    held = {r["holder"]: r["held_bytes"] for r in rows}
    sharded = job.memory.resident
    assert held["(allocated before the recording)"] == sharded
    assert held["activation"] > 0.5 * (rows[0]["peak_bytes"] - sharded)
    assert sum(held.values()) == rows[0]["peak_bytes"] and "unknown" not in held
