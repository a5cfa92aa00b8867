"""The compiled core: without SSE2 (aarch64, macOS) it reads what it reads with it, and misuse is an
exception, never the end of the process."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from random import Random

import pytest

from htk.base.core.engine import load_core

SOURCES = sorted((Path(__file__).parents[3] / "native/kineto").glob("*.cpp"))
EVENT = (
    '{{"ph":"X","cat":"{cat}","name":"{name}","pid":{pid},"tid":7,"ts":{ts},"dur":{dur},\n'
    '  "args":{{"External id":{pid},"Input Dims":[[{pid}, 2],[]],"unread":"{name}",'
    '"memory bandwidth (GB/s)":{ts}{pid},"grid":[1,1,{pid}]}}}}'
)
HEAD = """
from htk.base.native import _kineto as k
from htk.parsers.kineto.native import _DESCRIPTION as d
"""
NAMES = ["a", "aten::" + "x" * 40, 'say \\"}],[{\\" now', "é😀", "back\\\\slash", "", "\\u00e9" * 9]


@pytest.fixture(scope="module")
def scalar(tmp_path_factory):
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None or load_core() is None:
        pytest.skip("no C++ compiler here to build the core without SSE2")
    built = tmp_path_factory.mktemp("scalar") / "_kineto.abi3.so"
    include = sysconfig.get_paths()["include"]
    flags = ["-std=c++17", "-O0", "-shared", "-fPIC", "-DHTK_SCALAR", f"-I{include}"]
    command = [compiler, *flags, *map(str, SOURCES), "-o", str(built)]
    if (done := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip(f"{compiler} cannot build the core here: {done.stderr[:200]}")
    spec = importlib.util.spec_from_file_location("htk_scalar._kineto", built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def document(dice: Random, events: int) -> bytes:
    written = [
        EVENT.format(
            cat=dice.choice(["cpu_op", "kernel"]),
            name=dice.choice(NAMES),
            pid=dice.randrange(10 ** dice.randrange(1, 9)),
            ts=dice.randrange(10 ** dice.randrange(1, 16)) / 8,
            dur=dice.choice(["1", "0.5", "1234567.125", "1e3"]),
        )
        for _ in range(events)
    ]
    between = dice.choice([",", ",\n" + " " * 20, " ,\t"])
    return ('{"traceEvents":[' + between.join(written) + '],"traceName":"t"}').encode()


def test_the_same_cells(scalar, truth):
    from htk.parsers.kineto import native

    dice = Random(1)
    for _ in range(40):
        text = document(dice, 30)
        text = text[: dice.choice([len(text), dice.randrange(len(text))])]
        sizes = Random(2)
        wide = native.parse_events(truth.Pieces(text), rest=True)
        narrow = native.parse_events(
            truth.Pieces(text, lambda dice=sizes: dice.randrange(1, 99)), rest=True, core=scalar
        )
        assert truth.cells(wide) == truth.cells(narrow)
        assert wide.header == narrow.header
        assert wide.issues == narrow.issues


def test_public_traces(scalar, truth, shared):
    from htk.base.io.decompress import open_stream
    from htk.parsers.kineto import native

    for name in ("hta/mtia_inference_trace/mtia_inference_rank_0", "tracelens/b200/eager_trace"):
        path = shared / "traces" / f"{name}.json.gz"
        with open_stream(path) as one, open_stream(path) as other:
            wide, narrow = native.parse_events(one), native.parse_events(other, core=scalar)
        assert wide.rows > 1000
        assert truth.cells(wide) == truth.cells(narrow)


MISUSES = [
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
]


def test_misuse_is_an_exception() -> None:
    """In one process: a crash would end it before it tells of the rest."""
    if load_core() is None:
        pytest.skip("the compiled core is not built here")
    told = (
        f"try: {code}\nexcept Exception as e: print(type(e).__name__)\nelse: print('nothing')\n"
        for code, _ in MISUSES
    )
    program = HEAD + "".join(told)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == [error for _, error in MISUSES], done.stderr
