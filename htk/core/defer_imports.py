"""Keeps start-up short where a library would import more than it needs.

For processes that are htk's own, where no user's code runs: the command line.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _NotYet:
    """Finds neither pandas nor dateutil."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        if name in ("pandas", "dateutil"):
            raise ImportError(name)


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


class _NoDocs(dict[str, Any]):
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


class _MaskedArrays(ModuleType):
    """`numpy.ma`, imported for anything but the question whether an array is a masked one."""

    def __getattr__(self, name: str) -> Any:
        if name == "MaskedArray" and "numpy.ma" not in sys.modules:
            return _NoMaskedArray
        return getattr(import_module("numpy.ma"), name)


def _spare_masked_arrays() -> None:
    """Let pyarrow ask whether an array is masked without importing `numpy.ma`.

    An import of it by anybody puts the module itself in this place.
    """
    import numpy as np

    if "numpy.ma" not in sys.modules:
        np.ma = _MaskedArrays("numpy.ma")


def _wrapping_late(spec: ModuleSpec | None) -> ModuleSpec | None:
    """Return the spec of pyarrow.compute, whose functions are then wrapped when first asked for."""
    if spec is not None and spec.loader is not None:
        spec.loader = _LateWrappers(spec.loader)
    return spec


class _NoFunctions:
    """Arrow's functions while pyarrow.compute is imported: the one that some versions name."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def list_functions(self) -> list[str]:
        return [name for name in self._registry.list_functions() if name == "utf8_zero_fill"]

    def get_function(self, name: str) -> Any:
        return self._registry.get_function(name)


class _LateWrappers(Loader):
    """Loads pyarrow.compute as if the library had one function, and wraps others on demand."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        core = import_module("pyarrow._compute")
        registry = core.function_registry
        core.function_registry = lambda: _NoFunctions(registry())  # type: ignore[attr-defined]
        try:
            self._loader.exec_module(module)
        except (AttributeError, LookupError, NameError):  # a version that names more of them
            core.function_registry = registry  # type: ignore[attr-defined]
            return self._loader.exec_module(module)
        finally:
            core.function_registry = registry  # type: ignore[attr-defined]
        module.function_registry = registry  # type: ignore[attr-defined]

        def wrapped(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            try:
                function = registry().get_function(name.removesuffix("_"))  # and_, or_
            except KeyError:
                raise AttributeError(f"{module.__name__} has no attribute {name!r}") from None
            wrapper = module._wrap_function(name, function)
            setattr(module, name, wrapper)
            return wrapper

        module.__getattr__ = wrapped  # type: ignore[method-assign]
