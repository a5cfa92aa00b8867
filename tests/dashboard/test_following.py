"""A folder that is followed: what comes is read once it rests, and filters stay."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from htk.dashboard import frame
from htk.dashboard.following import Followed, file_states
from htk.dashboard.runs import Runs
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.conftest import new_tab
from tests.dashboard.conftest import serving, shows, until, watch
from tests.kineto_file import kernel, launch, of_rank, op, step, write


def rank_file(folder: Path, rank: int, kernels: int = 3) -> None:
    events = [step(0, 1, 40)]
    for k in range(kernels):
        events += [op("aten::mm", 2 + 10 * k, 3), launch(k + 1, 3 + 10 * k)]
        events += [kernel(f"gemm_{rank}", 4 + 10 * k, 5, k + 1)]
    write(folder / f"rank{rank}.json", *events, **of_rank(rank, 2))


def test_files_are_read_once_they_rest(tmp_path: Path) -> None:
    rank_file(tmp_path, 0)
    followed = Followed(tmp_path)
    read = threading.Semaphore(0)

    def read_anew() -> str:
        read.release()
        return ""

    assert followed.look(read_anew).version == 0
    rank_file(tmp_path, 1)
    assert "being written" in followed.look(read_anew).text
    rank_file(tmp_path, 1, kernels=4)
    assert "being written" in followed.look(read_anew).text, "it grew meanwhile"
    assert not read.acquire(blocking=False)
    followed.look(read_anew)
    assert read.acquire(timeout=60)
    while not (news := followed.look(read_anew)).version:
        threading.Event().wait(0.01)
    assert (news.version, news.text) == (1, "2 files")
    assert followed.look(read_anew).version == 1, "nothing more has come"
    (tmp_path / "rank1.json").unlink()
    followed.look(read_anew)
    followed.look(lambda: "no file is left")
    while (news := followed.look(read_anew)).text.startswith("reading"):
        threading.Event().wait(0.01)
    assert (news.version, news.text) == (1, "not read: no file is left")


def test_what_cannot_be_looked_at_is_no_change(tmp_path: Path) -> None:
    assert file_states(tmp_path / "gone") == frozenset()
    assert file_states("s3://bucket/run") == frozenset()


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    monkeypatch.setattr(frame, "FOLLOW_MS", 300)  # three looks, one after the other
    folder = tmp_path / "run"
    folder.mkdir()
    rank_file(folder, 0)
    options = OpenOptions(cache=False)
    runs = Runs([], trace=open_trace(folder, options), followed=Followed(folder), options=options)
    with serving(runs) as address:
        yield folder, address


def test_a_page_follows_its_folder_and_keeps_its_filters(
    browser: Any, growing: tuple[Path, str]
) -> None:
    folder, address = growing
    page = new_tab(browser)
    wrong: list[str] = []
    watch(page, wrong)
    page.goto(f"{address}/kernel_top?name=gemm")
    shows(page, "gemm_0")
    page.click("#follow", force=True)
    rank_file(folder, 1)
    shows(page, "gemm_1")
    until(page, "() => document.querySelector('#follow-state').innerText === '2 files'")
    assert page.evaluate("() => location.search") == "?name=gemm"
    page.close()
    assert wrong == []
