"""A dataset is there whole or not at all: what is written of it, and in what order."""

from pathlib import Path

import pytest

from htk.answers.export.dataset import read_dataset, write_dataset
from htk.base.schema import TABLES
from htk.traces.trace.opening import open_trace
from tests.two_ranks import write_ranks


def test_a_dataset_cut_short_has_no_rank_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ranks").mkdir()
    trace = open_trace(write_ranks(tmp_path / "ranks"))
    whole = tmp_path / "whole"
    write_dataset(trace, TABLES, whole, "parquet")
    written = sorted(path.relative_to(whole) for path in whole.rglob("*.parquet"))
    of_ranks = [path for path in written if path.parts[0] == "ranks"]
    assert len(of_ranks) == 2 and read_dataset(whole).ranks == [0, 1]
    cut = tmp_path / "cut"

    for form in ("parquet", "arrow", "csv"):
        for left in range(len(written)):
            count = 0

            def interrupted(source: Path, target: Path, left: int = left) -> None:
                nonlocal count
                count += 1
                if count > left:
                    raise KeyboardInterrupt
                source.rename(target)

            monkeypatch.setattr(Path, "replace", interrupted)
            with pytest.raises(KeyboardInterrupt):
                write_dataset(trace, TABLES, cut / form / str(left), form)
            files = [path for path in (cut / form / str(left)).rglob("*") if path.is_file()]
            assert len(files) == left and {path.suffix for path in files} <= {f".{form}"}
            assert left > len(written) - 2 or not read_dataset(cut / form / str(left)).files
