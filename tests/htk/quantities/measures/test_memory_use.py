"""Blocks of memory by their events, of each recording by itself."""

from htk.analyses.memory.memory_peaks import memory_peaks
from htk.analyses.memory.memory_replay import memory_replay
from htk.analyses.memory.memory_timeline import memory_timeline
from htk.quantities.measures.memory_categories import pair_block_events
from htk.quantities.measures.memory_use import MemoryUse
from tests.memory_events import event
from tests.tables import answer_of, make


def test_an_address_given_anew_ends_a_block_s_life() -> None:
    rows = [event(10, "a", 5, 5), event(20, "a", 7, 7), event(30, "a", -7, 0)]
    born, gone = pair_block_events(MemoryUse.from_memory(make("memory", rows)))
    assert (born.tolist(), gone.tolist()) == ([0, 1], [1, 2])


def test_recordings_of_a_rank_have_memory_of_their_own() -> None:
    """What the first still holds at its end was freed when nobody recorded."""
    rows = [event(10, "a", 5, 5), event(20, "b", 20, 25)]
    second = ((110, "a", 7, 7), (120, "b", -20, 0), (130, "a", -7, 0))
    rows += [{**event(*values), "cycle": 1} for values in second]
    memory = make("memory", rows)
    born, gone = pair_block_events(MemoryUse.from_memory(memory))
    assert (born.tolist(), gone.tolist()) == ([0, 1, 2], [-1, -1, 4])
    peaks = answer_of(memory_peaks, memory=memory)
    assert {(r["cycle"], r["peak_ns"], r["peak_bytes"]) for r in peaks} == {
        (0, 20, 25),
        (1, 110, 7),
    }
    last = {r["cycle"]: r["allocated_bytes"] for r in answer_of(memory_timeline, memory=memory)}
    assert last == {0: 25, 1: 0}
    replayed = answer_of(memory_replay, memory=memory)
    most = {r["cycle"]: r["peak_bytes"] for r in replayed if r["case"] == "recorded"}
    assert most == {0: 25, 1: 7}
