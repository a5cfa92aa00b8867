"""What steps consist of: each kind of item of a recording that is worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from htk.traces.compare.items import EACH, READERS, By, Side
from htk.traces.trace.opening import open_trace
from tests.htk.traces.compare.small_recording import recording
from tests.kineto_file import kernel, launch, of_rank, op, step, write

STEPS = [[("gemm", 10), ("copy", 5)], [("gemm", 20)], [("gemm", 40), ("gemm", 2)]]


def totals(side: Side, by: By) -> dict[str, list[int]]:
    """Time of each name in each sample, in the samples' order."""
    items = READERS[by](side)
    counted = (items.sample >= 0) & (items.code >= 0)
    table = np.zeros((len(items.names), len(side.samples)), np.int64)
    np.add.at(table, (items.code[counted], items.sample[counted]), items.time[counted])
    return dict(zip(items.names, table.tolist(), strict=True))


def test_each_kernel_and_operator_belongs_to_its_step(tmp_path: Path) -> None:
    side = Side(recording(tmp_path / "t.json", STEPS))
    assert side.ranks.tolist() == [0]
    assert side.samples.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
    assert totals(side, "kernel") == {"gemm": [10_000, 20_000, 42_000], "copy": [5000, 0, 0]}
    assert totals(side, "op") == {"aten::mm": [90_000] * 3}


def test_parts_of_a_step_add_up_to_it(tmp_path: Path) -> None:
    side = Side(recording(tmp_path / "t.json", STEPS))
    parts = totals(side, "time")
    total = parts.pop("total")
    assert np.sum(list(parts.values()), axis=0).tolist() == total
    assert parts["compute"] == [15_000, 20_000, 42_000]
    assert parts["exposed communication"] == [0, 0, 0]


def test_ranks_are_samples_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 3):
        events = [step(7, 0, 100), op("aten::mm", 0, 90), launch(1, 1)]
        events += [kernel("gemm", 5, 10 + rank, 1)]
        write(tmp_path / f"r{rank}.json", *events, **of_rank(rank, 4))
    side = Side(open_trace([tmp_path / f"r{r}.json" for r in (0, 3)]).tables)
    assert side.ranks.tolist() == [0, 3]
    assert side.samples.tolist() == [[0, 0, 7], [3, 0, 7]]
    assert totals(side, "kernel") == {"gemm": [10_000, 13_000]}


def test_without_gpu_work_a_step_takes_what_it_takes_on_the_host(tmp_path: Path) -> None:
    events = [step(0, 0, 100), op("aten::mm", 0, 90), step(1, 100, 120), op("aten::mm", 100, 90)]
    side = Side(open_trace(write(tmp_path / "host.json", *events)).tables)
    assert totals(side, "time") == {"total": [100_000, 120_000]}


@pytest.mark.parametrize("by", EACH)
def test_without_steps_nothing_belongs_to_one(tmp_path: Path, by: By) -> None:
    events = [op("aten::mm", 0, 9), launch(1, 1), kernel("gemm", 5, 10, 1)]
    side = Side(open_trace(write(tmp_path / "t.json", *events)).tables)
    assert len(side.samples) == 0
    assert set(READERS[by](side).sample.tolist()) <= {-1}
    assert side.recorded_ns == 10_000  # the GPU's work; without any, the operators'
    host = Side(open_trace(write(tmp_path / "host.json", op("aten::mm", 0, 9))).tables)
    assert host.recorded_ns == 9000
