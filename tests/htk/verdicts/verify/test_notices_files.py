"""That `htk verify` notices what goes wrong between file and table, and how it says so."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from htk.answers.export import merged
from htk.base.io.table_file import read_tables, write_tables
from htk.faces.cli.main import run_command_line
from htk.traces.trace import cut
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.verdicts.verify.outcome import DIFFERS, NOT_APPLICABLE, OK, all_checks, list_outcomes
from htk.verdicts.verify.subject import Subject
from tests.htk.verdicts.verify.two_busy_ranks import write_ranks
from tests.kineto_file import kernel, of_rank, write


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    return write_ranks(tmp_path)


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("HTK_CACHE_DIR", str(folder))
    return folder


def states(subject: Subject, *names: str) -> dict[str, str]:
    chosen = [check for check in all_checks() if check.name in names]
    assert len(chosen) == len(names)
    return {outcome.check.name: outcome.state for outcome in list_outcomes(subject, chosen)}


def rewrite(cache: Path, name: str, change: Any) -> None:
    """Write a table of each entry anew, sealed as one that a mistaken reader made."""
    for file in cache.glob("*/parsed.arrow"):
        key = file.parent.name
        stored = read_tables(file, key, file.name, thorough=True)
        tables = {table: stored[table] for table in stored.index}
        if name in tables:
            tables[name] = change(tables[name])
        file.unlink()  # it is mapped where it was read
        write_tables(file, tables, key, file.name)


def later(table: pa.Table) -> pa.Table:
    """Every activity ends 1 ns later."""
    index = table.schema.get_field_index("end_ns")
    ends = pa.array(table["end_ns"].to_numpy() + 1)
    return table.set_column(index, table.schema.field(index), ends)


def test_a_spoiled_cache_is_noticed(ranks: Path, cache: Path) -> None:
    open_trace(str(ranks))
    rewrite(cache, "kernels", later)
    noticed = ("kernels", "time", "overlap", "cache")
    assert set(states(Subject(str(ranks)), *noticed).values()) == {DIFFERS}
    fresh = Subject(str(ranks), OpenOptions(cache=False))
    assert states(fresh, *noticed) == dict.fromkeys(noticed, OK) | {"cache": NOT_APPLICABLE}


def test_a_lost_row_is_noticed(ranks: Path, cache: Path) -> None:
    open_trace(str(ranks))
    rewrite(cache, "launches", lambda table: table.slice(0, table.num_rows - 1))
    noticed = ("events", "cache")
    assert states(Subject(str(ranks)), *noticed) == dict.fromkeys(noticed, DIFFERS)


def test_a_selection_that_keeps_too_much_is_noticed(
    ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert states(Subject(ranks), "selections") == {"selections": OK}
    monkeypatch.setattr(cut, "are_within", lambda time, spans: np.ones(len(time), bool))
    assert states(Subject(ranks), "selections") == {"selections": DIFFERS}


def test_an_engine_of_its_own_mind_is_noticed(ranks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("htk.base.native._kineto")

    def flat(threads: Any, starts: Any, ends: Any) -> Any:
        return np.full(len(threads), -1, np.int32), np.zeros(len(threads), np.int32)

    monkeypatch.setattr("htk.base.columns.nesting.nest_pure", flat)
    subject = Subject(str(ranks), OpenOptions(cache=False))
    assert states(subject, "engines", "operators") == {
        "engines": DIFFERS,
        "operators": OK,
    }
    monkeypatch.setenv("HTK_ENGINE", "pure")
    subject = Subject(str(ranks), OpenOptions(cache=False))
    assert states(subject, "engines", "operators") == {
        "engines": NOT_APPLICABLE,
        "operators": DIFFERS,
    }


def test_a_merged_file_that_lost_an_event_is_noticed(
    ranks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_merged = merged.write_merged

    def lossy(*args: Any) -> merged.Merged:
        written = write_merged(*args)
        document = json.loads(gzip.decompress(written.file.read_bytes()))
        events = document["traceEvents"]
        events.remove(next(e for e in events if e.get("cat") == "kernel"))
        written.file.write_bytes(gzip.compress(json.dumps(document).encode()))
        return written

    assert states(Subject(str(ranks)), "merged") == {"merged": OK}
    monkeypatch.setattr(merged, "write_merged", lossy)
    assert states(Subject(str(ranks)), "merged") == {"merged": DIFFERS}


# -- what it says


@pytest.fixture
def wrong(ranks: Path, cache: Path) -> Iterator[str]:
    """Two ranks whose cached kernels all last 1 ns too long."""
    open_trace(str(ranks))
    rewrite(cache, "kernels", later)
    yield str(ranks)


def test_exit_code_4_and_a_line_for_each_check(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["verify", wrong]) == 4
    shown = capsys.readouterr()
    *lines, summary = shown.out.splitlines()
    assert len(lines) == len(all_checks()) and not shown.err
    assert f"{len(lines)} checks: " in summary and " differ, " in summary
    line = next(line for line in lines if line.startswith("differs") and " kernels " in line)
    assert "differs by +" in line and "kernel_top of 0 ampere_bf16_gemm" in line


def test_exit_code_0_where_all_agree(
    ranks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["verify", str(ranks), "--no-cache"]) == 0
    assert " 0 differ, " in capsys.readouterr().out
    assert run_command_line(["verify", str(ranks), "--quick", "-o", str(tmp_path / "out.txt")]) == 0
    assert not capsys.readouterr().out
    written = (tmp_path / "out.txt").read_text()
    assert "--quick leaves out the second reading" in written and "ok " in written


def test_json_holds_every_check(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["verify", wrong, "--format", "json"]) == 4
    answer = json.loads(capsys.readouterr().out)
    assert answer["analysis"] == "verify"
    rows = {row["check"]: row for row in answer["rows"]}
    assert list(rows) == [check.name for check in all_checks()]
    assert rows["kernels"]["state"] == DIFFERS
    assert rows["kernels"]["differences"] > 0 and rows["kernels"]["values"] > 0


def test_what_cannot_be_opened_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["verify", "/no/such/file.json"]) == 3
    shown = capsys.readouterr()
    assert not shown.out and "no such file" in shown.err


def test_a_file_too_large_or_not_whole_is_said(tmp_path: Path) -> None:
    write(tmp_path / "rank0.json", *(kernel("gemm", k, 1) for k in range(9)), **of_rank(0, 2))
    write(tmp_path / "rank1.json", kernel("gemm", 1, 2), **of_rank(1, 2))
    subject = Subject(str(tmp_path), OpenOptions(cache=False), largest_bytes=1 << 10)
    outcome = {o.check.name: o for o in list_outcomes(subject)}
    assert outcome["kernels"].state == OK  # of the rank that was read
    assert "rank0.json holds more than 1.00 KiB" in outcome["kernels"].finding
    assert outcome["events"].state == NOT_APPLICABLE
    text = (tmp_path / "rank1.json").read_text()
    (tmp_path / "rank1.json").write_text(text[:-2])
    outcome = {o.check.name: o for o in list_outcomes(Subject(str(tmp_path)))}
    assert "rank1.json is not valid JSON" in outcome["kernels"].finding
