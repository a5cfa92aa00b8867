"""What nobody should ask of the compiled reader: an exception, never the end of the process."""

import subprocess
import sys

import pytest

from htk.core.engine import core

HEAD = "from htk import _kineto as k; from htk.parsers.kineto.native import _DESCRIPTION as d\n"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("k.Parser.__new__(k.Parser).result()", "RuntimeError"),
        ("k.Parser.__new__(k.Parser).lend(0, False)", "ValueError"),
        ("k.Parser.__new__(k.Parser).feed(b'')", "RuntimeError"),
        ("k.Parser(d).lend(len(d), True)", "ValueError"),
        ("k.Parser(d).lend(-1, True)", "ValueError"),
        ("k.Parser.__new__(k.Parser).select(0, b'', 'l')", "ValueError"),
        ("k.Parser(d).select(len(d), b'', 'l')", "ValueError"),
        ("k.Parser(d).select(0, b'1234567', 'u')", "ValueError"),
        ("k.Parser(d).select(0, bytes(8), 'u')", "ValueError"),
        ("k.Parser(d).select(0, b'', 'l')", "ValueError"),
        ("k.Parser(d).select(0, b'', '\\u4e00')", "ValueError"),
        ("k.Parser([(0, 'a', 9)])", "ValueError"),
        ("k.Parser([(0, 'a', 3), (0, 'a', 3), (2, '', 4)])", "ValueError"),
        ("k.nest(b'1234', b'12345678', b'1234567')", "ValueError"),
    ],
)
def test_misuse_is_an_exception(code: str, error: str) -> None:
    if core() is None:
        pytest.skip("the compiled core is not built here")
    done = subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True)
    assert done.returncode == 1, "no crash"
    assert done.stderr.strip().splitlines()[-1].startswith(error)
