"""Chrome timelines of operation-level rows."""

import pytest

from htk.errors import MalformedTrace
from htk.parsers import operation_timeline
from htk.straggler.streamed import job_of
from tests.parsers.operation_files import SAMPLES, parsed


def test_a_timeline_holds_what_its_threads_and_processes_say() -> None:
    data = (SAMPLES / "operation_timeline/slow_worker.json").read_bytes()
    found = parsed(operation_timeline, data)
    table = found.tables["job_operations"]
    workers = set(zip(table["dp_rank"].to_pylist(), table["stage"].to_pylist(), strict=True))
    assert workers == {(replica, stage) for replica in range(3) for stage in range(2)}
    job = job_of(table)
    assert job.replayed.tolist() == pytest.approx(job.recorded.tolist(), abs=5_000)  # us, rounded
    peers = data.replace(b"TP rank 0", b"TP rank 1")
    with pytest.raises(MalformedTrace, match="without operations"):
        parsed(operation_timeline, peers)
