"""Recorded allocations through the model of the allocator: a step by hand, and real ones."""

import pickle
from pathlib import Path

import pytest

from htk.analyses.memory.memory_replay import memory_replay
from htk.answers.ask import ask_trace
from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from tests.tables import answer_of, make

MIB = 1 << 20


def event(
    number: int, address: str, mib: float, total: float, reserved: float
) -> dict[str, object]:
    return {
        "name": "[memory]", "time_ns": number, "event": number, "address": address,
        "process": "1", "thread": "1", "device_type": 1, "device": 3,
        "size_bytes": round(mib * MIB), "allocated_bytes": round(total * MIB),
        "reserved_bytes": round(reserved * MIB),
    }  # fmt: skip


# 50 MiB were there, of which p (20) is freed within; 10 more were reserved and free.
EVENTS = [
    event(0, "a", 30, 80, 90),
    event(1, "p", -20, 60, 90),
    event(2, "b", 16, 76, 90),
    event(3, "a", -30, 46, 90),
    event(4, "c", 40, 86, 130),
    event(5, "b", -16, 70, 130),
]


def _cases(**options: object) -> dict[str, dict[str, object]]:
    rows = answer_of(memory_replay, memory=make("memory", EVENTS), options=options)
    assert {(row["rank"], row["device"]) for row in rows} == {(0, 3)}
    return {str(row["case"]): row for row in rows}


def test_a_step_worked_by_hand() -> None:
    """The rest (30) and p (20) have segments of their own, a too: 80. b takes 16 of the 20 that p
    leaves. c (40) fits nowhere: 120. Addresses that are no numbers show no segments."""
    cases = _cases()
    assert list(cases) == ["recorded", "replayed"]
    recorded, replayed = cases.values()
    assert recorded["reserved_bytes_max"] == 130 * MIB and recorded["peak_bytes"] == 86 * MIB
    assert recorded["unused_pct"] == pytest.approx(100 * 44 / 130)
    assert replayed["reserved_bytes_max"] == 120 * MIB and replayed["segments"] == 4
    assert replayed["peak_bytes"] == 86 * MIB and replayed["blocks"] == 5
    assert replayed["unused_pct"] == pytest.approx(100 * 34 / 120)


def test_what_a_snapshot_held_before_its_history_takes_room(tmp_path: Path) -> None:
    """12 GiB of weights and three activations of 1 GiB do not fit into 8 GiB."""
    gib, base = 1 << 30, 0x7F0000000000
    weights = {"size": 12 * gib, "state": "active_allocated", "address": base}
    free = {"size": 4 * gib, "state": "inactive", "address": base + 12 * gib}
    segment = {"device": 0, "total_size": 16 * gib, "address": base, "blocks": [weights, free]}
    history = [
        {
            "action": action,
            "addr": base + (12 + k) * gib,
            "size": gib,
            "device": 0,
            "time_us": at + k,
        }
        for at, action in ((100, "alloc"), (200, "free_completed"))
        for k in range(3)
    ]
    path = tmp_path / "rank0_snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [history]}))
    trace = open_trace([path])
    answer = ask_trace(trace, "memory_replay")
    recorded, replayed, warm = answer.to_pylist()
    assert recorded["peak_bytes"] == replayed["peak_bytes"] == warm["peak_bytes"] == 15 * gib
    assert recorded["blocks"] == 3
    assert answer.coverage["allocated_before_bytes"] == 12 * gib
    small = ask_trace(trace, "memory_replay", capacity_gib=8.0).to_pylist()
    assert [row["failed"] for row in small] == [0, 1, 1]


def test_a_warm_start_lies_where_the_recorded_blocks_did() -> None:
    """Two segments by their blocks: 60 MiB from 1024 on (blocks of 40, and of 30 beyond its end)
    and 20 from 2048 (of 5, which is below 10); 10 MiB were there. Nothing more is needed."""
    events = [
        event(0, str(1024 * MIB), 40, 50, 90),
        event(1, str(1024 * MIB), -40, 10, 90),
        event(2, str(1054 * MIB), 30, 40, 90),
        event(3, str(2048 * MIB), 5, 45, 90),
        event(4, str(1024 * MIB), 30, 75, 90),
    ]
    rows = answer_of(memory_replay, memory=make("memory", events))
    cases = {row["case"]: row for row in rows}
    warm = cases["replayed warm"]
    assert warm["reserved_bytes_max"] == (10 + 60 + 20) * MIB
    assert warm["peak_bytes"] == 75 * MIB and warm["segments"] == 3
    # Cold, of a segment of 40 the block of 30 leaves 10, of which 5 are taken: 30 more.
    assert cases["replayed"]["reserved_bytes_max"] == (10 + 40 + 30) * MIB


def test_where_memory_ends_what_is_free_is_given_back() -> None:
    """With 100 MiB the segments of a, free by then, go for c; with 80 c does not fit at all."""
    replayed = _cases(capacity_gib=100 / 1024)["replayed"]
    assert (replayed["retries"], replayed["failed"]) == (1, 0)
    assert replayed["reserved_bytes_max"] == 90 * MIB
    replayed = _cases(capacity_gib=80 / 1024)["replayed"]
    assert (replayed["retries"], replayed["failed"]) == (1, 1)


def test_factors_change_sizes_of_their_categories() -> None:
    rows = [
        {**row, "category": category}
        for row, category in zip(
            EVENTS, ("activation", "gradient", "gradient", "activation", "optimizer_state", "x"),
            strict=True,
        )
    ]  # fmt: skip
    memory = make("memory", rows)
    options = {"activations_by": 2.0, "gradients_by": 0.0, "optimizer_by": 0.25}
    answer = answer_of(memory_replay, memory=memory, options=options)
    changed = {row["case"]: row for row in answer}["changed"]
    # 30 of the rest, 60 of a; no gradients; c is 10 of the 60 that a leaves.
    assert changed["reserved_bytes_max"] == 90 * MIB and changed["blocks"] == 3
    assert changed["peak_bytes"] == 90 * MIB


def _pass() -> list[dict[str, object]]:
    """Four activations of 30 MiB; the backward pass takes 12 beside the last of them."""
    sizes = [("a", 30), ("b", 30), ("c", 30), ("d", 30), ("t", 12), ("t", -12), ("d", -30),
             ("c", -30), ("b", -30), ("a", -30)]  # fmt: skip
    rows, total = [], 0.0
    for number, (address, mib) in enumerate(sizes):
        total += mib
        kind = "temporary" if address == "t" else "activation"
        rows.append({**event(number, address, mib, total, 140), "category": kind})
    return rows


def test_activations_that_are_computed_again_leave_room() -> None:
    """Two segments keep a and c. b is free when c comes, which takes its place; d is free while t
    stands in its place, and back behind it: 90 MiB hold all."""
    memory = make("memory", _pass())
    options = {"recomputed_segments": 2}
    rows = {r["case"]: r for r in answer_of(memory_replay, memory=memory, options=options)}
    assert rows["replayed"]["peak_bytes"] == 132 * MIB
    changed = rows["changed"]
    assert changed["peak_bytes"] == 90 * MIB and changed["reserved_bytes_max"] == 90 * MIB
    assert changed["blocks"] == rows["replayed"]["blocks"] + 2


def test_ways_to_fit_from_the_cheapest_on() -> None:
    """In 105 MiB neither all activations fit nor those without the optimizer's half; recomputed
    they do."""
    memory = make("memory", _pass())
    options = {"ways": True, "capacity_gib": 105 / 1024}
    rows = answer_of(memory_replay, memory=memory, options=options)
    names = [str(row["case"]) for row in rows]
    assert names[-5:] == [
        "as asked", "8-bit optimizer", "recomputed", "offloaded", "half the batch",
    ]  # fmt: skip
    failed = {str(row["case"]): row["failed"] for row in rows}
    assert failed["as asked"] and failed["8-bit optimizer"] and not failed["half the batch"]


@pytest.mark.parametrize(
    "options",
    [
        {"activations_by": -1.0}, {"capacity_gib": 0.0}, {"recomputed_segments": 0},
        {"offloaded_segments": 1 << 40},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="must"):
        _cases(**options)


def test_what_goes_not_together_is_refused() -> None:
    with pytest.raises(UsageError, match="not both"):
        _cases(recomputed_segments=2, offloaded_segments=2)
    with pytest.raises(UsageError, match="capacity_gib"):
        _cases(ways=True)


def test_nothing_recorded_is_no_row() -> None:
    assert answer_of(memory_replay, memory=make("memory", [])) == []
    cpu = [{**EVENTS[0], "device_type": 0}]
    assert answer_of(memory_replay, memory=make("memory", cpu)) == []


def test_real_steps_reserve_what_was_recorded(shared: Path) -> None:
    """Steady steps, in which nothing more was reserved: begun warm they need what there was."""
    folder = shared / "traces/tracelens/h100"
    names = (
        "Qwen_Qwen1.5-0.5B-Chat__1016005", "gaunernst_bert-small-uncased__1016001",
        "facebook_timesformer-base-finetuned-k400__1016002",
        "Falconsai_nsfw_image_detection__1016002",
    )  # fmt: skip
    paths = [folder / f"{name}.json.gz" for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip(f"not in {folder}")
    missed = []
    for path in paths:
        rows = {
            row["case"]: row for row in ask_trace(open_trace(path), "memory_replay").to_pylist()
        }
        recorded, warm = rows["recorded"], rows["replayed warm"]
        missed.append(warm["reserved_bytes_max"] / recorded["reserved_bytes_max"] - 1)
        assert warm["peak_bytes"] == pytest.approx(recorded["peak_bytes"], rel=0.02)
    assert max(map(abs, missed)) < 0.07 and sum(map(abs, missed)) / len(missed) < 0.03
