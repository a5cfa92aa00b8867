"""The start page in a browser: runs listed, paths opened or refused, files uploaded."""

import json
import shutil
from pathlib import Path
from typing import Any

from htk.dashboard.components import without_commands
from tests.dashboard.conftest import settled, shows, slow_line, typed, until


def test_a_run_of_the_list_opens(page: Any, address: str, folder: Path) -> None:
    page.goto(f"{address}/runs")
    page.click(f"text={folder.name}/two")
    settled(page)
    assert f"run={folder.name}/two" in page.url
    shows(page, "GPU step")


def test_a_run_opens_over_a_slow_line(page: Any, address: str, folder: Path) -> None:
    """Slower than the page asks how far the reading is."""
    shutil.copytree(folder / "two", folder / "far")
    page.goto(f"{address}/runs")
    with slow_line(page, 700):
        page.click(f"text={folder.name}/far")
        settled(page)
    shutil.rmtree(folder / "far")


def test_a_path_is_opened_within_the_folder_only(page: Any, address: str, folder: Path) -> None:
    page.goto(f"{address}/runs")
    typed(page, "open-path", "/etc")
    page.click("#open-button")
    page.wait_for_selector(".problem")
    assert "is not in the folders" in page.inner_text(".problem")
    typed(page, "open-path", str(folder / "two" / "rank0.json"))
    page.press("#open-path", "Enter")
    settled(page)
    shows(page, "GPU step")


def test_a_damaged_run_says_what_and_what_next(page: Any, address: str, folder: Path) -> None:
    page.goto(f"{address}/?run={folder.name}/damaged")
    page.wait_for_selector(".problem >> text=rank0.json")
    assert "rank0.json" in page.inner_text(".problem")
    assert page.locator("text=Choose another run").count()


def test_the_files_of_all_ranks_are_uploaded_together(
    page: Any, address: str, folder: Path
) -> None:
    page.goto(f"{address}/runs")
    ranks = [str(folder / "two" / f"rank{rank}.json") for rank in (0, 1)]
    page.set_input_files("#upload-file", ranks)
    page.wait_for_url("**/?run=upload/*")
    settled(page)
    shows(page, "all 2 ranks")
    assert page.inner_text("#run") == "rank0.json · 2 files"


def test_a_damaged_upload_is_no_traceback(page: Any, address: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps({"what": "no trace"}))
    page.goto(f"{address}/runs")
    page.set_input_files("#upload-file", str(bad))
    page.wait_for_selector(".problem")
    assert "not a trace that htk knows" in page.inner_text(".problem")
    assert page.inner_text(".problem p").startswith("bad.json: "), "not where the server keeps it"
    until(page, "() => document.getElementById('run').innerText === 'bad.json'")  # no key


def test_too_large_a_file_is_not_sent(page: Any, address: str, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    large.write_bytes(b" " * ((1 << 20) + 1))
    page.goto(f"{address}/runs")
    page.set_input_files("#upload-file", str(large))
    until(page, "() => document.body.innerText.includes('larger than may be uploaded')")


def test_messages_name_no_command() -> None:
    said = "holiday.txt: not a trace that htk knows; `htk formats` shows what it reads"
    assert without_commands(said) == "holiday.txt: not a trace that htk knows"
    other = "rank0.json: damaged; it ends within an event"
    assert without_commands(other) == other
