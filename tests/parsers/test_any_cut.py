"""A file that ends anywhere, or is damaged anywhere, is read or refused in one line."""

from pathlib import Path

import pytest

from htk.base.errors import MalformedTrace, UnknownFormat
from htk.parsers import list_parsers
from tests.parsers.log_files import SAMPLES, parsed
from tests.thinned import thinned

BY_FOLDER = {p.NAME: p for p in list_parsers()}
FILES = sorted(
    p
    for name in BY_FOLDER
    for p in (SAMPLES / name).rglob("*")
    if p.is_file() and p.stat().st_size and name != "kineto"
)


@pytest.mark.parametrize("path", thinned(FILES, 4), ids=lambda p: p.name)
def test_any_cut_is_survived_or_refused_in_one_line(path: Path) -> None:
    parser, whole = BY_FOLDER[path.relative_to(SAMPLES).parts[0]], path.read_bytes()
    for cut in range(0, len(whole), max(len(whole) // 25, 1)):
        for data in (whole[:cut], whole[:cut] + b"\x00\xff{[" + whole[cut:]):
            try:
                parsed(parser, data, path.name)
            except (MalformedTrace, UnknownFormat) as error:
                assert "\n" not in str(error)
