"""Large tables that are mapped while a file is still being read."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from htk.columns.arrow import text
from htk.io.spill import Spill
from htk.trace.opening import OpenOptions, open_trace

SAMPLES = Path(__file__).parents[3] / "sample_traces"
ROWS = 1_500_000


def _large() -> pa.Table:
    codes = np.arange(ROWS) % 7 - 1
    return pa.table({"n": np.arange(ROWS), "name": text(codes, pa.array([*"abcdef"]))})


def test_a_large_table_is_mapped_and_leaves_no_file(tmp_path: Path) -> None:
    table = _large()
    before = pa.total_allocated_bytes()
    mapped = Spill(tmp_path / "cache")(table)
    assert mapped.equals(table) and mapped.schema.equals(table.schema, check_metadata=True)
    assert pa.total_allocated_bytes() - before < 1 << 20, "not in memory a second time"
    assert list((tmp_path / "cache").iterdir()) == []
    with pytest.raises(ValueError):
        mapped["n"].chunk(0).to_numpy()[0] = 5


def test_a_small_table_and_one_that_the_disk_refuses_stay_in_memory(tmp_path: Path) -> None:
    small = pa.table({"n": [1, 2]})
    assert Spill(tmp_path / "cache")(small) is small
    assert not (tmp_path / "cache").exists()
    (tmp_path / "file").write_text("")
    large = _large()
    assert Spill(tmp_path / "file")(large) is large


def test_what_is_read_with_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("htk.io.spill._LARGE_BYTES", 1000)
    file = SAMPLES / "simulated/llama2-7b/rank0.pt.trace.json.gz"
    spilled, in_memory = open_trace(file), open_trace(file, OpenOptions(cache=False))
    assert in_memory.tables["kernels"].num_rows > 100
    for name in in_memory.tables:
        assert spilled.tables[name].equals(in_memory.tables[name]), name
