"""Fixtures for the tests of analyses."""

from pathlib import Path

import pytest

import htk
from htk.faces.notebook.session import Session
from tests.two_ranks import write_ranks


@pytest.fixture
def two_ranks(tmp_path: Path) -> Session:
    return htk.open(write_ranks(tmp_path), cache=False)
