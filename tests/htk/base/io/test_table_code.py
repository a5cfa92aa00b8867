"""The hash of the code that makes tables: another where any of it changed, taken without it."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import htk
from htk.base.io.table_code import ANSWERING, PACKAGES, answer_code, plugin_code, table_code
from tests.kineto_file import of_rank, op, write

PACKAGE = Path(htk.__file__).parent
MENDED = """
import pyarrow
_parse = parse

def parse(source, options):
    parsed = _parse(source, options)
    ops = parsed.tables["cpu_ops"]
    names = pyarrow.array(["mended"]).dictionary_encode()
    parsed.tables["cpu_ops"] = ops.set_column(ops.column_names.index("name"), "name", names)
    return parsed
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of htk, its links followed."""
    left_out = shutil.ignore_patterns("__pycache__", "sample", "assets", "dashboard")
    shutil.copytree(PACKAGE, tmp_path / "tree" / "htk", ignore=left_out)
    return tmp_path / "tree"


def hash_of(tree: Path) -> str:
    table_code.cache_clear()
    return table_code(tree / "htk")


@pytest.mark.parametrize(
    "changed",
    [
        "parsers/kineto/tables.py",
        "parsers/common/nccl_calls.py",
        "quantities/derived/links.py",
        "base/names/public.txt",
        "base/columns/groups.py",
        "base/core/engine.py",
        "base/schema/comm.py",
        "physics/link_rates.py",
        "base/errors.py",
    ],
)
def test_any_code_that_makes_tables_counts(tree: Path, changed: str) -> None:
    before = hash_of(tree)
    file = tree / "htk" / changed
    facts, text = file.stat(), file.read_bytes()
    assert hash_of(tree) == before
    file.write_bytes(text[:-2] + b"#\n")  # of the same length and time
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert hash_of(tree) != before
    file.write_bytes(text)
    assert hash_of(tree) == before
    file.rename(file.with_name("moved" + file.suffix))
    assert hash_of(tree) != before


def test_compiled_parts_count_and_other_code_does_not(tree: Path) -> None:
    before = hash_of(tree)
    (tree / "htk" / "faces/cli/main.py").write_text("")
    (tree / "htk" / "parsers" / "__pycache__").mkdir(exist_ok=True)
    (tree / "htk" / "parsers" / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert hash_of(tree) == before
    hashes = {before}
    for name in ("_allocator", "_kineto", "_order", "_overlaps", "_replay"):
        (tree / "htk/base/native" / f"{name}.other.so").write_bytes(b"another build")
        hashes.add(hash_of(tree))
    assert len(hashes) == 6


def test_a_plugin_is_its_module_or_its_folder(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("a")
    (tmp_path / "beside.py").write_text("b")
    folder, module = (str(tmp_path / name) for name in ("__init__.py", "beside.py"))
    first = plugin_code(folder), plugin_code(module)
    plugin_code.cache_clear()
    (tmp_path / "beside.py").write_text("c")
    assert plugin_code(folder) != first[0] and plugin_code(module) != first[1]


@pytest.mark.parametrize(
    ("packages", "counted"), [(PACKAGES, PACKAGES), (ANSWERING, (*PACKAGES, *ANSWERING))]
)
def test_what_counts_imports_nothing_that_does_not(
    packages: tuple[str, ...], counted: tuple[str, ...]
) -> None:
    prefixes = tuple(f"htk.{name.replace('/', '.')}." for name in counted)
    for package in packages:
        for file in (PACKAGE / package).rglob("*.py"):
            for name in _imported(file):
                assert f"{name}.".startswith(prefixes), f"{file} imports {name}"


def test_any_code_that_answers_counts(tree: Path) -> None:
    def now() -> str:
        answer_code.cache_clear()
        return answer_code(tree / "htk")

    seen = {now()}
    for name in ("analyses/comm/comm_wait.py", "quantities/measures/blame.py", "answers/ask.py"):
        (tree / "htk" / name).write_text("# changed")
        assert now() not in seen
        seen.add(now())
    before = now()
    (tree / "htk" / "faces/cli/main.py").write_text("")
    assert now() == before


def _imported(file: Path) -> set[str]:
    """Return each module of htk, or name of one, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{a.name}" for a in node.names}
    return {name for name in names if name.startswith("htk.")}


def test_a_mended_parser_reads_a_file_anew(tree: Path, tmp_path: Path) -> None:
    """The answer of the old code stays in the cache and is not given."""
    write(tmp_path / "t.json", op("aten::relu", 1, 5), **of_rank(0))
    cache = tmp_path / "cache"
    first = _names(tree, tmp_path / "t.json", cache)
    assert first == _names(tree, tmp_path / "t.json", cache) == "aten::relu"
    assert len(list(cache.glob("*/meta.json"))) == 1
    parser = tree / "htk" / "parsers" / "kineto" / "__init__.py"
    parser.write_text(parser.read_text() + MENDED)
    assert _names(tree, tmp_path / "t.json", cache) == "mended"
    assert len(list(cache.glob("*/meta.json"))) == 2


def _names(tree: Path, file: Path, cache: Path) -> str:
    code = (
        "import sys, htk\nassert htk.__file__.startswith(sys.argv[2]), htk.__file__\n"
        "from htk.traces.trace.opening import open_trace\n"
        "print(*open_trace(sys.argv[1]).tables['cpu_ops']['name'].to_pylist())"
    )
    environment = os.environ | {"PYTHONPATH": str(tree), "HTK_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code, str(file), str(tree)]
    done = subprocess.run(
        command, env=environment, cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_taken_without_importing_a_parser() -> None:
    assert importlib.util.find_spec("htk.parsers") is not None
    code = (
        "import sys\nfrom htk.base.io.table_code import table_code\n"
        "assert len(table_code()) == 64\n"
        "print(*[m for m in sys.modules if m.startswith(('htk.parsers', 'pyarrow', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
