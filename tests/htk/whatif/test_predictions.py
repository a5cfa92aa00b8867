"""A what-if of a predicted trace is one of its recording, with the edits of both."""

from pathlib import Path

import pytest

from htk.base.errors import UsageError
from htk.traces.trace.opening import open_trace
from htk.whatif.api import WhatIf, whatif
from tests.htk.whatif.simulated_job import written
from tests.thinned import thinned

JOB = {"nodes": 1, "layers": 2, "micro_batch": 4, "accumulation": 2, "steps": 3, "stacks": False}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("recorded"), **JOB)


def change_all(asked: WhatIf, edits: str) -> WhatIf:
    for edit in edits.split():
        name, _, value = edit.partition("=")
        asked = asked.change(name, value)
    return asked


TWICE = [  # the prediction, what is asked of it, and both at once
    ("batch=2x", "batch=1x", "batch=8"),
    ("batch=2x", "batch=8", "batch=8"),
    ("batch=2x", "batch=0.5x", "batch=4"),
    ("batch=8", "batch=2x", "batch=16"),
    ("batch=2x", "seq=2x", "batch=2x seq=2x"),
    ("seq=2048", "seq=0.5x", "seq=1024"),
    ("seq=2x", "accumulation=2x", "seq=2x accumulation=4"),
    ("batch=2x", "tp=2 sp=on", "batch=2x tp=2 sp=on"),
    ("batch=global=32", "world=4", "batch=8 world=4"),
    ("sharding=shard_grad_op", "sharding=full_shard", "sharding=full_shard"),
    ("sharding=shard_grad_op", "checkpointing=on", "sharding=shard_grad_op checkpointing=on"),
    ("fix_rank=all", "precision=tf32", "fix_rank=all precision=tf32"),
    ("host=2x", "host=2x", "host=4x"),
    ("network=bandwidth=2x", "network=bandwidth=2x,latency=2", "network=bandwidth=4x,latency=2"),
    ("replace=gemm=2x", "replace=norm=gone", "replace=gemm=2x replace=norm=gone"),
]


@pytest.mark.parametrize(("first", "second", "both"), thinned(TWICE, 4))
def test_a_second_whatif_equals_both_at_once(
    recorded: Path, tmp_path: Path, first: str, second: str, both: str
) -> None:
    change_all(whatif(str(recorded)), first).write(tmp_path / "predicted")
    again = change_all(whatif(str(tmp_path / "predicted")), second)
    row, expected = (
        asked.run().to_pylist()[0] for asked in (again, change_all(whatif(str(recorded)), both))
    )
    assert row["verdict"].startswith(("trusted", "indicative"))
    for name in (
        "step_time_ns",
        "step_time_ns_hi90",
        "mfu_pct",
        "peak_memory_bytes",
        "tokens_per_s",
    ):
        assert row[name] == expected[name], name


def test_a_prediction_of_a_prediction_is_noted_too(recorded: Path, tmp_path: Path) -> None:
    whatif(str(recorded)).batch("2x").write(tmp_path / "twice")
    whatif(str(tmp_path / "twice")).batch("2x").write(tmp_path / "four")
    step = whatif(str(tmp_path / "four")).run()["step_time_ns"][0].as_py()
    assert step == whatif(str(recorded)).batch("4x").run()["step_time_ns"][0].as_py()


def test_a_recording_that_changed_is_refused(tmp_path: Path) -> None:
    recorded = written(tmp_path / "recorded", **JOB)
    whatif(str(recorded)).batch("2x").write(tmp_path / "predicted")
    with pytest.raises(UsageError, match=r"predicted from .* with --batch 2x"):
        WhatIf(open_trace(str(tmp_path / "predicted"))).run()
    (recorded / "rank0.pt.trace.json.gz").touch()
    with pytest.raises(UsageError, match="changed since"):
        whatif(str(tmp_path / "predicted"))
    for file in recorded.iterdir():
        file.unlink()
    with pytest.raises(UsageError, match="which a what-if needs"):
        whatif(str(tmp_path / "predicted"))
