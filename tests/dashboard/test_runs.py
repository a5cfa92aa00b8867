"""What may be opened, what is kept, what is given up."""

import gzip
import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from htk.base.errors import UnknownRank, UsageError
from htk.dashboard.memo import SingleFlightCache
from htk.dashboard.runs import MOST_OPEN, Cancelled, OpenJob, Runs, holds_runs
from htk.faces.cli.commands.dashboard import command
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.selection import Selection
from tests.kineto_file import kernel, of_rank, write

PATIENCE_S = 180  # on a busy machine


def run(folder: Path, rank: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return write(folder / f"rank{rank}.json", kernel("gemm", 1, 2), **of_rank(rank, 2))


@pytest.mark.parametrize(
    "key",
    ["runs/../secret", "runs/a/../../secret", "secret", "/etc", "runs//etc", "../secret", "",
     "upload", "upload/..", "runs/a\0b", "runs/none"],
)  # fmt: skip
def test_keys_that_lead_out_are_refused(tmp_path: Path, key: str) -> None:
    run(tmp_path / "secret")
    run(tmp_path / "runs" / "a")
    with pytest.raises(UsageError):
        Runs([tmp_path / "runs"]).path_of(key)


def test_what_the_dashboard_opens_is_read_in_the_process_with_limits(tmp_path: Path) -> None:
    run(tmp_path / "runs" / "a")
    runs = Runs([tmp_path / "runs"], options=OpenOptions(cache=False))
    assert runs.begin("runs/a").ended.wait(PATIENCE_S)
    opened = runs.trace("runs/a")
    assert opened and not opened.files[0].entry.lacks("kernel_totals"), "only that process makes it"


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    secret = run(tmp_path / "secret")
    inside = run(tmp_path / "runs" / "a")
    (tmp_path / "runs" / "linked").symlink_to(tmp_path / "secret")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "rank0.json").symlink_to(secret)
    (tmp_path / "runs" / "same").symlink_to(inside.parent)
    runs = Runs([tmp_path / "runs"])
    for key in ("runs/linked", "runs/linked/rank0.json"):
        with pytest.raises(UsageError, match="leads out"):
            runs.path_of(key)
    job = runs.begin("runs/b")
    assert job.ended.wait(30) and "leads out of the folders that may be read" in job.error
    assert runs.path_of("runs/same") == inside.parent, "a link within the folder is none out of it"
    assert [r.key for r in runs.listed()] == ["runs/a"]


def test_typed_paths(tmp_path: Path) -> None:
    path = run(tmp_path / "runs" / "a")
    runs = Runs([tmp_path / "runs"])
    assert runs.key_of(str(path)) == "runs/a/rank0.json"
    assert runs.key_of("a") == "runs/a"
    for text in ("/etc/passwd", "../runs2", "a/../../x", "b"):
        with pytest.raises(UsageError, match="is not in the folders"):
            runs.key_of(text)


def test_a_folder_of_runs_is_told_from_a_run(tmp_path: Path) -> None:
    run(tmp_path / "a")
    assert not holds_runs(tmp_path), "one run in a folder of its own"
    run(tmp_path / "b")
    assert holds_runs(tmp_path)
    run(tmp_path)
    assert not holds_runs(tmp_path)


def mixed(folder: Path) -> Path:
    """Two recordings that do not say their rank."""
    folder.mkdir()
    for name in ("one", "other"):
        write(folder / f"{name}.json", kernel("gemm", 5, 5, 1))
    return folder


def test_files_that_do_not_say_their_rank_are_runs_of_their_own(tmp_path: Path) -> None:
    """Once the reading of their folder has failed for it."""
    mixed(tmp_path / "mixed")
    name = tmp_path.name
    runs = Runs([tmp_path], options=OpenOptions(cache=False))
    assert [r.key for r in runs.listed()] == [f"{name}/mixed"]
    job = runs.begin(f"{name}/mixed")
    assert job.ended.wait(PATIENCE_S) and "rank" in job.error
    listed = sorted((r.key, r.files) for r in runs.listed())
    assert listed == [(f"{name}/mixed/one.json", 1), (f"{name}/mixed/other.json", 1)]
    job = runs.begin(listed[0][0])
    assert job.ended.wait(PATIENCE_S) and not job.error


def test_a_folder_of_such_files_is_served_as_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = mixed(tmp_path / "mixed")
    served: list[Any] = []
    monkeypatch.setattr(
        "htk.faces.cli.commands.dashboard._serve_app", lambda *asked: served.append(asked)
    )
    done = CliRunner().invoke(command, [str(folder), "--no-cache", "--no-browser"])
    assert done.exit_code == 0 and len(served) == 1, done.output
    assert "each file is listed as a run of its own" in done.output
    done = CliRunner().invoke(command, [str(folder), "--no-cache", "--rank-pattern", "r([0-9]+)"])
    assert isinstance(done.exception, UnknownRank) and len(served) == 1


def test_runs_are_read_in_the_background_and_a_few_are_kept(tmp_path: Path) -> None:
    for k in range(MOST_OPEN + 1):
        run(tmp_path / "runs" / str(k))
    runs = Runs([tmp_path / "runs"], options=OpenOptions(cache=False))
    for k in range(MOST_OPEN + 1):
        assert runs.begin(f"runs/{k}").ended.wait(PATIENCE_S)
    assert runs.trace("runs/0") is None, "the one used longest ago is let go"
    assert runs.ask("runs/1", Selection(), "kernel_top").to_pylist()[0]["name"] == "gemm"


def test_a_run_that_was_read_is_not_read_again(tmp_path: Path) -> None:
    """Who asked before it was there, and begins it when it is."""
    run(tmp_path / "runs" / "a")
    runs = Runs([tmp_path / "runs"], options=OpenOptions(cache=False))
    job = runs.begin("runs/a")
    assert job.ended.wait(PATIENCE_S)
    assert runs.begin("runs/a") is job


def test_a_failure_is_told(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rank0.json").write_text("nonsense")
    job = Runs([tmp_path / "runs"]).begin("runs/rank0.json")
    assert job.ended.wait(PATIENCE_S)
    assert "not a trace that htk knows" in job.error


def test_reading_is_given_up(tmp_path: Path) -> None:
    job = OpenJob()
    job.cancelled = True
    with pytest.raises(Cancelled):
        open_trace(run(tmp_path), OpenOptions(cache=False, progress=job))


def test_uploads(tmp_path: Path) -> None:
    runs = Runs(upload_bytes=100)
    key = runs.upload("../../x y.json", io.BytesIO(b"{}"))
    path = Path(str(runs.path_of(key)))
    assert [f.name for f in path.iterdir()] == ["x_y.json"], "no path in a name"
    for body, why in ((b" " * 101, "larger than"), (b"", "empty")):
        with pytest.raises(UsageError, match=why):
            runs.upload("x.json", io.BytesIO(body))
    with pytest.raises(UsageError, match="sent twice"):
        runs.upload("x y.json", io.BytesIO(b"{}"), key)
    assert runs.title_of(key) == "x_y.json"
    assert runs.upload("rank1.json", io.BytesIO(b" " * 90), key) == key
    assert runs.title_of(key) == "rank1.json · 2 files"
    assert [runs.title_of(k) for k in ("upload/none", "upload/..", "runs/a")] == [
        "upload", "upload", "runs/a",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="larger than"):
        runs.upload("rank2.json", io.BytesIO(b" " * 9), key)  # all of them together
    assert sorted(f.name for f in path.iterdir()) == ["rank1.json", "x_y.json"]
    for other in ("upload/none", "upload/..", "upload/", "sample"):
        with pytest.raises(UsageError, match="no upload"):
            runs.upload("rank2.json", io.BytesIO(b"{}"), other)
    for _ in range(20):
        runs.upload("x.json", io.BytesIO(b"{}"))
    assert len(list(path.parent.iterdir())) <= 9, "old ones make room"
    runs.close()
    assert not path.parent.exists()


def test_a_value_is_made_once_however_many_ask() -> None:
    kept: SingleFlightCache[int] = SingleFlightCache(2)
    made: list[int] = []
    gate = threading.Event()

    def make() -> int:
        gate.wait(PATIENCE_S)
        made.append(1)
        return 7

    found: list[int] = []
    asking = [threading.Thread(target=lambda: found.append(kept.get("a", make))) for _ in range(4)]
    for thread in asking:
        thread.start()
    gate.set()
    for thread in asking:
        thread.join()
    assert (found, made) == ([7, 7, 7, 7], [1])


def test_what_failed_is_tried_again() -> None:
    kept: SingleFlightCache[int] = SingleFlightCache(2)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 // 0)
    assert kept.get("a", lambda: 3) == 3


def test_the_sample_is_always_there() -> None:
    assert open_trace(Runs().path_of("sample"), OpenOptions(cache=False)).ranks == [0, 1]


def test_an_upload_that_made_room_is_not_named_by_its_key() -> None:
    runs = Runs()
    runs.upload("rank0.json", io.BytesIO(b"{}"))
    with pytest.raises(UsageError) as refused:
        runs.path_of("upload/b1ME")
    assert str(refused.value) == "this upload is not kept any more: upload it again"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps such a limit")
def test_an_upload_that_takes_all_memory_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read by a process of its own, whose limits are not the server's."""
    monkeypatch.setenv("HTK_PARSE_MEMORY", str(60 << 20))
    runs = Runs([tmp_path])
    many = b'{"traceEvents": [' + b'{"ph":"X","ts":1,"dur":1,"name":"a"},' * 1_500_000 + b"{}]}"
    bad = runs.upload("rank0.json.gz", io.BytesIO(gzip.compress(many, 1)))
    good = runs.upload("rank0.json", io.BytesIO(run(tmp_path).read_bytes()))
    for key in (bad, good):
        assert runs.begin(key).ended.wait(PATIENCE_S)
    job = runs.job(bad)
    assert job is not None and "memory" in job.error and "HTK_PARSE_MEMORY" in job.error
    assert runs.trace(good) is not None
    runs.close()
