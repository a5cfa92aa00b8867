"""Keeps start-up short where a library would import more than it needs.

For processes that are htk's own, where no user's code runs: the command line.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from htk.base.mappings import Fields


class _NotYet:
    """Finds neither pandas nor dateutil."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name in ("pandas", "dateutil"):
            raise ImportError(name)


def spare_data_classes() -> None:
    """Let the methods that data classes get be compiled when they are first called, all but
    `__init__`: most of what a data class costs at import, and few are ever compared or printed.

    Python 3.13 compiles all methods of a class at once, which takes a third of the time.
    """
    import dataclasses

    compile_now = getattr(dataclasses, "_create_fn", None)
    if compile_now is not None:
        dataclasses._create_fn = _compiling_late(compile_now)  # type: ignore[attr-defined]


def _compiling_late(compile_now: Callable[..., Any]) -> Callable[..., Any]:
    def create_function(name: str, *source: Any, **names: Any) -> Callable[..., Any]:
        if name == "__init__":
            method: Callable[..., Any] = compile_now(name, *source, **names)
            return method

        @cache
        def compile_once() -> Callable[..., Any]:
            function: Callable[..., Any] = compile_now(name, *source, **names)
            return function

        def call_late(*values: Any) -> Any:
            for owner in type(values[0]).__mro__:
                if vars(owner).get(name) is call_late:
                    setattr(owner, name, compile_once())
            return compile_once()(*values)

        call_late.__name__ = name
        return call_late

    return create_function


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas and dateutil at its first conversion, for half a second.

    It does so to recognise a Series and a relativedelta, which no command has. It looks again when
    to_pandas() needs them, so nothing is lost.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    blocker = _NotYet()
    sys.meta_path.insert(0, blocker)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(blocker)


class _NoDocs(Fields):
    """What pyarrow takes from the documentation of its options: nothing."""

    def __init__(self, text: str) -> None:
        super().__init__(Parameters=[])


def spare_docs() -> None:
    """Let NumPy and pyarrow.compute be imported without composing documentation, which no command
    shows.

    pyarrow's parser of docstrings imports pydoc and more: a fifth of what a question takes whose
    tables are cached.
    """
    parser = ModuleType("pyarrow.vendored.docscrape")
    parser.NumpyDocString = _NoDocs  # type: ignore[attr-defined]
    for stand_in in (parser, ModuleType("numpy._core._add_newdocs")):
        sys.modules.setdefault(stand_in.__name__, stand_in)


def spare_modules() -> None:
    """Keep pyarrow from importing what no command needs, and from wrapping each of its functions
    before it is called."""
    if "numpy" not in sys.modules and "pyarrow" not in sys.modules:
        sys.meta_path.insert(0, _Sparing())


class _Sparing:
    """Sees modules before they are looked for, up to pyarrow.compute."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pyarrow.lib":
            _spare_masked_arrays()
        elif name == "cloudpickle" and "pyarrow.types" not in sys.modules:
            raise ImportError(name)  # pyarrow pickles without it
        elif name == "pyarrow.compute":
            sys.meta_path.remove(self)
            return _wrapping_late(find_spec(name))
        return None


class _NoMaskedArray:
    """Stands for the class of arrays that do not exist before `numpy.ma` is imported."""


def _is_none(array: Any) -> bool:
    return False


class _MaskedArrays(ModuleType):
    """`numpy.ma`, imported for anything but the question whether an array is a masked one."""

    def __getattr__(self, name: str) -> Any:
        if "numpy.ma" not in sys.modules:
            if name == "MaskedArray":
                return _NoMaskedArray
            if name in ("is_masked", "isMaskedArray"):  # asked for by numpy.unique
                return _is_none
        return getattr(import_module("numpy.ma"), name)


class _AnyType:
    """Stands for each type that NumPy has for annotations, which nothing looks at."""

    def __class_getitem__(cls, item: Any) -> type["_AnyType"]:
        return cls


class _Types(ModuleType):
    """`numpy.typing`, imported when it is asked for more than the types of arrays."""

    NDArray = ArrayLike = DTypeLike = _AnyType

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def _numpy_without_types() -> Any:
    """Import NumPy, which itself needs the types of arrays for annotations alone, without them."""
    own = "numpy._typing"
    if "numpy" in sys.modules:
        return sys.modules["numpy"]
    sys.modules[own] = _Types(own)
    try:
        numpy: Any = import_module("numpy")
    finally:
        del sys.modules[own]
    numpy.typing = sys.modules["numpy.typing"] = _Types("numpy.typing")
    return numpy


def _spare_masked_arrays() -> None:
    """Let pyarrow ask whether an array is masked without importing `numpy.ma`.

    An import of it by anybody puts the module itself in this place.
    """
    np = _numpy_without_types()
    if "numpy.ma" not in sys.modules:
        np.ma = _MaskedArrays("numpy.ma")


def _wrapping_late(spec: ModuleSpec | None) -> ModuleSpec | None:
    """Return the spec of pyarrow.compute, whose functions are then wrapped when first asked for."""
    if spec is not None and spec.loader is not None:
        spec.loader = _LateWrappers(spec.loader)  # type: ignore[assignment]
    return spec


class _NoFunctions:
    """Arrow's functions while pyarrow.compute is imported: the one that some versions name."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def list_functions(self) -> list[str]:
        return [name for name in self._registry.list_functions() if name == "utf8_zero_fill"]

    def get_function(self, name: str) -> Any:
        return self._registry.get_function(name)


class _LateWrappers:
    """Loads pyarrow.compute as if the library had one function, and wraps others on demand.

    A loader by what it can do: the module of their base class imports five more.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        core = import_module("pyarrow._compute")
        registry = core.function_registry
        core.function_registry = lambda: _NoFunctions(registry())  # type: ignore[attr-defined]
        try:
            self._loader.exec_module(module)
        except (AttributeError, LookupError, NameError):  # a version that names more of them
            core.function_registry = registry  # type: ignore[attr-defined]
            self._loader.exec_module(module)
            return
        finally:
            core.function_registry = registry  # type: ignore[attr-defined]
        module.function_registry = registry  # type: ignore[attr-defined]

        def find_wrapped(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            try:
                function = registry().get_function(name.removesuffix("_"))  # and_, or_
            except KeyError:
                raise AttributeError(f"{module.__name__} has no attribute {name!r}") from None
            wrapper = module._wrap_function(name, function)
            setattr(module, name, wrapper)
            return wrapper

        module.__getattr__ = find_wrapped  # type: ignore[method-assign]
