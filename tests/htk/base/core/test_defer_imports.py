"""What start-up leaves out is there all the same when it is asked for."""

import subprocess
import sys
from importlib.abc import Loader
from textwrap import dedent
from types import ModuleType

import pyarrow._compute
import pyarrow.compute as pc
import pytest

from htk.base.core.defer_imports import _LateWrappers


def _printed(program: str) -> list[str]:
    """Return the lines that a program prints, in a process whose start-up is kept short."""
    start = """
        import sys
        from htk.base.core.defer_imports import spare_data_classes, spare_docs, spare_modules
        spare_data_classes()
        spare_docs()
        spare_modules()
        import pyarrow as pa
        import numpy as np
    """
    words = [sys.executable, "-c", dedent(start) + dedent(program)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()


def test_numbers_become_columns_without_the_module_of_masked_arrays() -> None:
    program = """
        column = pa.array(np.unique([2, 0, 1, 0]))
        print(column.to_pylist(), "numpy.ma" in sys.modules, "cloudpickle" in sys.modules)
    """
    assert _printed(program) == ["[0, 1, 2] False False"]


def test_masked_arrays_are_seen_once_somebody_makes_them() -> None:
    program = """
        pa.array(np.arange(3))
        masked = np.ma.masked_array([1, 2], mask=[False, True])
        print(pa.array(masked).to_pylist(), isinstance(masked, np.ma.MaskedArray))
        print(np.ma.is_masked(masked), np.ma.isMaskedArray(masked), np.unique(masked))
        import numpy.ma
        print(np.ma is sys.modules["numpy.ma"])
    """
    assert _printed(program) == ["[1, None] True", "True True [1 --]", "True"]


def test_types_of_arrays_are_imported_once_they_are_used_for_more_than_annotations() -> None:
    program = """
        import numpy.typing as npt
        def twice(array: npt.NDArray[np.int64] | None) -> npt.ArrayLike: ...
        print("numpy._typing" in sys.modules, np.linalg.eigh(np.eye(2)).eigenvalues)
        print(npt.NBitBase.__module__, "numpy._typing" in sys.modules)
        import numpy.typing as again
        print(again.NDArray[np.int64].__origin__ is np.ndarray, np.typing is again)
    """
    lines = _printed(program)
    assert lines == ["False [1. 1.]", "numpy.typing True", "True True"]


def test_data_classes_compare_hash_and_print_as_ever() -> None:
    program = """
        from dataclasses import FrozenInstanceError, dataclass, field, replace

        @dataclass(frozen=True, order=True, slots=True)
        class Point:
            x: int
            y: int = 2
            label: str = field(default="", compare=False)

        @dataclass
        class Named(Point.__mro__[1]):
            name: str
            inner: "Named | None" = None

        one, same, more = Point(1), Point(1, 2, "other"), Point(1, 3)
        print(one == same, one != more, hash(one) == hash(same), one < more, sorted([more, one]))
        print(one, replace(one, y=5), one == 1, {one: "kept"}[same])
        for change in (lambda: setattr(one, "x", 3), lambda: delattr(one, "x")):
            try:
                change()
            except FrozenInstanceError as error:
                print(error)
        a = Named("a"); a.inner = a
        print(a, Named("b") == Named("b"), Named("b") == a, Point.__eq__.__name__)
    """
    expected = [
        "True True True True [Point(x=1, y=2, label=''), Point(x=1, y=3, label='')]",
        "Point(x=1, y=2, label='') Point(x=1, y=5, label='') False kept",
        "cannot assign to field 'x'",
        "cannot delete field 'x'",
        "Named(name='a', inner=...) True False __eq__",
    ]
    assert _printed(program) == expected


def test_every_function_of_arrow_is_found_when_asked_for() -> None:
    wrapped = sorted(n for n in pc.list_functions() if hasattr(pc, n))
    program = """
        import pyarrow.compute as pc
        registry = pc.function_registry()
        print(len(registry.list_functions()) > 100, "sum" in vars(pc), hasattr(pc, "nothing"))
        print(pc.sum(pa.array([1, 2])), pc.min_max(pa.array([3, None]), skip_nulls=True)["max"])
        print(pc.and_(pa.array([True]), pa.array([False])).to_pylist(), "sum" in vars(pc))
        print(*sorted(name for name in pc.list_functions() if hasattr(pc, name)))
        from pyarrow.compute import utf8_upper, cast
        print(utf8_upper(pa.array(["a"])).to_pylist(), cast(pa.array([1]), "string").to_pylist())
    """
    lines = _printed(program)
    assert lines[:3] == ["True False False", "3 3", "[False] True"]
    assert set(wrapped) <= set(lines[3].split(" "))
    assert lines[4] == "['A'] ['1']"


def test_a_version_that_names_other_functions_is_loaded_as_it_is() -> None:
    lengths = []

    class NamingSum(Loader):
        def exec_module(self, module: ModuleType) -> None:
            known = pyarrow._compute.function_registry().list_functions()
            lengths.append(len(known))
            if "sum" not in known:
                raise NameError("sum")

    registry = pyarrow._compute.function_registry
    _LateWrappers(NamingSum()).exec_module(ModuleType("compute"))
    assert lengths[0] <= 1 and lengths[1] > 100 and len(lengths) == 2
    assert pyarrow._compute.function_registry is registry


def test_neither_questions_nor_commands_import_pandas() -> None:
    """A conversion of Arrow's where a module is imported does, before a command can keep it from
    that: the start took twice as long."""
    code = (
        "import sys\nfrom importlib import import_module\nfrom pkgutil import walk_packages\n"
        "from htk.analyses import ANALYSES, find_analysis\n"
        "for name in ANALYSES: find_analysis(name)\n"
        "for name in ('parsers', 'answers', 'whatif', 'verdicts', 'faces.cli', 'faces.report'):\n"
        "    package = import_module(f'htk.{name}')\n"
        "    for module in walk_packages(package.__path__, f'{package.__name__}.'):\n"
        "        import_module(module.name)\n"
        "        assert 'pandas' not in sys.modules, module.name\n"
        "assert 'pyarrow' in sys.modules"
    )
    pytest.importorskip("pandas")
    subprocess.run([sys.executable, "-c", code], check=True)
