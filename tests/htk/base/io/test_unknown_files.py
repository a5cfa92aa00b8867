"""What no parser recognised is not asked about again, until it or htk has changed."""

import os
import subprocess
import sys
from pathlib import Path

from htk.base.io.unknown_files import _MOST_BYTES, NAME, UnknownFiles
from tests.kineto_file import kernel, of_rank, write

KEY, OTHER = "a" * 40, "0123456789" * 4


def test_keys_are_remembered_beside_damage(tmp_path: Path) -> None:
    UnknownFiles(tmp_path / "cache").add(KEY)
    with (tmp_path / "cache" / NAME).open("ab") as file:
        file.write(b"\xff\x00 half a li" + OTHER.encode() + b"\n")
    UnknownFiles(tmp_path / "cache").add("b" * 40)
    known = UnknownFiles(tmp_path / "cache")
    assert KEY in known and "b" * 40 in known and OTHER not in known


def test_the_list_is_bounded_and_costs_nothing_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(f"{OTHER}\n".encode() * (_MOST_BYTES // 41 + 2))
    UnknownFiles(tmp_path).add(KEY)
    assert (tmp_path / NAME).read_text() == f"{KEY}\n"
    (tmp_path / "file").write_text("")
    UnknownFiles(tmp_path / "file").add(KEY)
    assert KEY not in UnknownFiles(tmp_path / "file")


def test_a_warm_question_imports_no_parser_for_a_file_beside_the_traces(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    write(run / "rank0.json", kernel("gemm", 1, 3), **of_rank(0))
    notes = run / "notes.json"
    notes.write_text('{"loss": 2}')

    def parsers_imported(n: int) -> bool:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "htk", "kernel_top", str(run), f"--n={n}"],
            env=os.environ | {"HTK_CACHE_DIR": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and "gemm" in done.stdout, done.stderr[-500:]
        assert "1 file unread" in done.stdout + done.stderr
        return "htk.parsers.nsight" in done.stderr

    assert parsers_imported(1)
    assert not parsers_imported(2)
    notes.write_text('{"loss": 1.5}')
    assert parsers_imported(3)
