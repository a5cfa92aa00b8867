"""Fixtures for all tests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
settings.register_profile("htk", deadline=None)  # a busy machine is no failure
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
    """Tests never see or fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTK_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
