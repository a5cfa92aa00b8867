"""Table `stalls`: of two ranks, each with calls that block and operators that take long."""

from pathlib import Path

import htk
from tests.kineto_file import Event, launch, of_rank, op, span, write


def _call(name: str, correlation: int, ts: float, dur: float) -> Event:
    return {**launch(correlation, ts, dur), "name": name}


def _events(late: float) -> list[Event]:
    """Data loading with the same inside it; a copy read back; a copy that returns at once."""
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    return [
        op("aten::empty", late, 5),
        span(loader, late + 10, 500),
        op(loader, late + 12, 400),
        op("aten::item", late + 600, 100),
        op("aten::_local_scalar_dense", late + 605, 90),
        _call("cudaStreamSynchronize", 1, late + 610, 80),
        _call("cudaMemcpyAsync", 2, late + 700, 20),
        op("aten::slow", late + 1000, 1500),
        op("aten::inner", late + 1001, 1400),
        op("aten::quick", late + 3000, 999),
    ]


def test_stalls_of_two_ranks(tmp_path: Path) -> None:
    for rank in (0, 1):
        write(tmp_path / f"rank{rank}.json", *_events(10_000.0 * rank), **of_rank(rank, 2))
    trace = htk.open(tmp_path)
    ops = trace.tables["cpu_ops"]["name"].to_pylist()
    rows = trace.tables["stalls"].to_pylist()
    found = [
        (
            row["rank"],
            row["cause"],
            row["name"].partition("#")[0],
            None if row["op_row"] is None else (row["op_row"], ops[row["op_row"]]),
            row["start_ns"] // 1000,
            row["end_ns"] // 1000,
        )
        for row in rows
    ]
    per_rank = len(ops) // 2
    expected = []
    for rank in (0, 1):
        late = 10_000 * rank
        reading = rank * per_rank + 3, "aten::_local_scalar_dense"
        expected += [
            (rank, "host_data_loading", "enumerate(DataLoader)", None, late + 10, late + 510),
            (rank, "host_sync", "cudaStreamSynchronize", reading, late + 610, late + 690),
            (rank, "host_operator", "aten::slow", None, late + 1000, late + 2500),
        ]
    assert found == expected
    assert trace.sel(ranks=[1]).tables["stalls"].to_pylist()[1]["op_row"] == 3


def test_a_selection_cuts_them(tmp_path: Path) -> None:
    trace = htk.open(write(tmp_path / "a.json", *_events(0)))
    stalls = trace.sel(from_ns=1_200_000).tables["stalls"].to_pylist()
    assert [(row["name"], row["start_ns"], row["end_ns"]) for row in stalls] == [
        ("aten::slow", 1_200_000, 2_500_000)
    ]
