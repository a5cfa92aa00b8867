"""Fixtures for all tests."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.two_ranks import write_ranks

if TYPE_CHECKING:  # a test of one module waits for no other
    from htk.faces.notebook.session import Session

ROOT = Path(__file__).parents[1]
CHROMIUM = os.environ.get("HTK_CHROMIUM") or shutil.which("chromium")
PATIENCE_MS = 180_000  # with a browser on a busy machine
# A busy machine is no failure, and two runs of the tests say the same; other examples than
# these, and more, are looked for by `make nightly-properties`. Hypothesis also draws constants of
# the modules that are imported, so another import may make a filter drop more: no failure either.
settings.register_profile(
    "htk",
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.register_profile(
    "nightly", settings.get_profile("htk"), derandomize=False, max_examples=1000
)
settings.load_profile("htk")


@pytest.fixture(scope="session")
def shared() -> Path:
    """Public traces and known figures that lie beside the project, where they do."""
    folder = Path(os.environ.get("HTK_SHARED", ROOT.parent / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip(f"no reference traces at {folder}; set HTK_SHARED to their folder")
    return folder


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests never see or fill the user's cache, nor plan by the user's site or use
    their keys."""
    with pytest.MonkeyPatch.context() as patch:
        # Who has no keys asks the cloud's metadata service for some, for half a minute each time.
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("HTK_SITE", "none")
        patch.setenv("HTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("settings")))
        yield


@pytest.fixture(autouse=True)
def readers_stay() -> Iterator[None]:
    """Files from outside are read by processes that wait for other tests' too, as a server's do:
    to start one takes longer than most tests. Those started within a test end with it: they are
    copies of this process as the test has changed it."""
    confined = sys.modules.get("htk.traces.trace.confined")
    if confined is None:
        yield
        return
    confined._most_ready = confined.SERVED
    confined.start_ready()
    before = {(reader, reader._process) for reader in confined._ready}
    yield
    for reader in list(confined._ready):
        if (reader, reader._process) not in before:
            confined._ready.remove(reader)
            reader.stop()


@pytest.hookimpl
def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays to the end: it took a tenth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    """End the processes that wait."""
    gc.unfreeze()
    confined = sys.modules.get("htk.traces.trace.confined")
    if confined is not None:
        confined._most_ready = 0
        while confined._ready:
            confined._ready.pop().stop()


@pytest.fixture
def no_reader_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files from outside are read by processes started for this test."""
    monkeypatch.setattr("htk.traces.trace.confined._most_ready", 0)
    monkeypatch.setattr("htk.traces.trace.confined._ready", [])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One real browser for all tests of a process: the driver allows no second beside it."""
    if CHROMIUM is None:
        pytest.skip("no Chromium: install it, or name it in HTK_CHROMIUM")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as p:
        opened = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def new_tab(browser: Any, **options: Any) -> Any:
    """A page of its own, that waits as long as a busy machine takes."""
    tab = browser.new_page(**options)
    tab.set_default_timeout(PATIENCE_MS)
    return tab


@pytest.fixture
def two_ranks(tmp_path: Path) -> "Session":
    """Two small ranks whose figures are known by hand."""
    import htk

    return htk.open(write_ranks(tmp_path), cache=False)
