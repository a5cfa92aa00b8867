"""Each edit and its inverse, held to the jobs simulated with them and without: time and memory."""

import pytest

from htk.whatif.predict import predict_answer
from tests.htk.whatif.named_jobs import started
from tests.thinned import thinned

PAIRS = [
    ("plain", "cp", "2", "cp 2", "1"),
    ("plain", "tp", "2", "tp 2", "1"),
    ("tp 4", "sp", "on", "tp 4 sp", "off"),
    ("two micro-batches", "pp", "2", "pp 2", "1"),
    ("plain", "accumulation", "8", "eight micro-batches", "1"),
    ("plain", "checkpointing", "on", "checkpointed", "off"),
    ("plain", "precision", "tf32", "tf32", "bf16"),
    ("plain", "seq", "2x", "longer", "0.5x"),
    ("plain", "sharding", "full_shard", "sharded", "ddp"),
]
AT_NIGHT = [
    ("cp 2 of 8", "cp", "4", "cp 4 of 8", "2"),
    ("tp 2 of 8", "tp", "4", "tp 4 of 8", "2"),
]
ONE_WAY = [
    ("plain", "world", "1", "alone"),
    ("sharded", "world", "1", "alone"),
    ("hybrid", "world", "1x4", "sharded"),
    ("hybrid", "world", "2x4", "hybrid in larger nodes"),
    ("hybrid in larger nodes", "world", "4x2", "hybrid in four nodes"),
    ("attention in parts", "seq", "2x", "attention in parts, longer"),
    ("attention in parts, longer", "seq", "1024", "attention in parts"),
    ("hybrid in larger nodes", "tp", "2", "tp 2, hybrid"),
    ("tp 2, hybrid", "tp", "1", "hybrid in larger nodes"),
]


@pytest.mark.parametrize(
    ("before", "edit", "value", "after"),
    thinned([(before, edit, there, after) for before, edit, there, after, _ in PAIRS], 3)
    + thinned([(after, edit, back, before) for before, edit, _, after, back in PAIRS], 3)
    + ONE_WAY
    + [
        pytest.param(*case, marks=pytest.mark.nightly)
        for before, edit, there, after, back in AT_NIGHT
        for case in ((before, edit, there, after), (after, edit, back, before))
    ],
)
def test_an_edit_makes_the_job_that_was_simulated_so(
    before: str, edit: str, value: str, after: str
) -> None:
    answer, truth = predict_answer(started(before), [(edit, value)]), started(after)
    assert answer.step_ns == pytest.approx(truth.step_ns, rel=0.12)
    low, high = answer.intervals[2:]
    assert low is not None and high is not None and low <= truth.step_ns <= high
    memory = truth.memory
    assert memory is not None and memory.peaks is not None
    if edit == "pp" and value == "1":  # stages show a part of the model each
        assert answer.peak is None
    else:
        assert answer.peak is not None
        assert answer.peak.allocated == pytest.approx(memory.peaks.highest, rel=0.05)


ALREADY = {
    "plain": "cp=1 tp=1 pp=1 sp=off ep=1 world=4 accumulation=1 batch=8 seq=1024 checkpointing=off "
    "precision=bf16 split:tensor=1 sharding=ddp hardware=a100-80gb host=1x network:bandwidth=1x",
    "cp 2": "cp=2 ep=1",
    "tp 2": "tp=2",
    "tp 2, hybrid": "tp=2 sharding=hybrid_shard world=2x4 cp=1",
    "pp 2": "pp=2",
    "tp 4 sp": "sp=on",
    "checkpointed": "checkpointing=on",
    "tf32": "precision=tf32",
    "sharded": "sharding=full_shard sharding=hybrid_shard world=4 world=1x4",
    "hybrid": "sharding=hybrid_shard sharding:hybrid_shard:2 world=2x2 world=4",
    "pp 2, hybrid": "sharding=hybrid_shard pp=2",
    "tp 2, pp 2, hybrid": "sharding=hybrid_shard tp=2 pp=2 world=2x4",
}


MADE_AT_NIGHT = {"tf32", "pp 2, hybrid", "tp 2, pp 2, hybrid"}


@pytest.mark.parametrize(
    ("job", "edit"),
    [
        pytest.param(job, edit, marks=[pytest.mark.nightly] if job in MADE_AT_NIGHT else [])
        for job, edits in ALREADY.items()
        for edit in edits.split()
    ],
)
def test_what_is_so_already_changes_neither_step_nor_interval(job: str, edit: str) -> None:
    name, _, value = edit.partition(":" if ":" in edit else "=")
    same, plain = predict_answer(started(job), [(name, value)]), predict_answer(started(job), [])
    assert (same.step_ns, same.intervals) == (plain.step_ns, plain.intervals)
    assert same.peak == plain.peak
