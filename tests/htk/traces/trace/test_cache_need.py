"""What `htk cache need` foretells is near what is kept then, and tells when it is too much."""

import json
from pathlib import Path

import pytest

from htk.base.errors import GateFailed
from htk.base.io.store import Store
from htk.faces.cli.main import run_command_line
from htk.recording.simulate.config import Config, check_config
from htk.recording.simulate.job import simulate_job
from htk.traces.trace.cache_need import cache_need
from htk.traces.trace.opening import open_trace

JOB = Config(model="gpt3-126m", layers=4, seq=128, nodes=1, gpus_per_node=4, steps=3)


@pytest.fixture
def ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    simulate_job(check_config(JOB), tmp_path / "ranks")
    (tmp_path / "ranks" / "truth.json").unlink()
    return tmp_path / "ranks"


def complete(folder: Path) -> int:
    """Keep all that is made file by file; return the bytes of it."""
    trace = open_trace(folder)
    for file in trace.files:
        for name in ("kernel_links", "op_links", "op_callers", "activities", "idle_causes"):
            file.table(name)
    return sum(entry.size_bytes for entry in Store().list())


def test_what_is_foretold_is_near_what_is_kept(ranks: Path) -> None:
    before = cache_need(ranks)
    assert (before.files, before.parsed_files, before.parsed_bytes) == (4, 0, 0)
    kept = complete(ranks)
    assert 0.5 * kept < before.expected_bytes < 2.5 * kept
    after = cache_need(ranks)
    assert (after.files, after.parsed_files, after.expected_bytes) == (4, 4, 0)
    assert after.parsed_bytes == after.total_bytes == kept
    half = [ranks / f"rank{k}.pt.trace.json.gz" for k in range(2)]
    assert cache_need(half).parsed_files == 2 and cache_need(half).total_bytes < kept


def test_too_much_is_said_with_what_to_do(
    ranks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["cache", "need", str(ranks)]) == 0
    assert "4 files, none of them parsed: about" in capsys.readouterr().out
    kept = complete(ranks)
    monkeypatch.setenv("HTK_CACHE_LIMIT", str(kept - 1))
    assert run_command_line(["cache", "need", str(ranks)]) == GateFailed.exit_code
    assert f"HTK_CACHE_LIMIT={kept}" in capsys.readouterr().out
    monkeypatch.setenv("HTK_CACHE_LIMIT", str(kept))
    assert run_command_line(["cache", "need", str(ranks), "--format", "json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["fits"] and facts["total_bytes"] == facts["limit_bytes"] == kept
