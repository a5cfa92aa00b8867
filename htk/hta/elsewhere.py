"""What HTA's notebooks import beside its questions, and what to use for it here."""

import sys
from importlib.machinery import ModuleSpec

_ITS_OWN = (
    "it works on HTA's own Trace: keep its import from hta, and take the parsed Trace from "
    "TraceAnalysis(trace_dir=..., include_last_profiler_step=True).t (pip install 'htk-trace[hta]')"
)
_READER = "htk reads every argument that it knows; nothing is to be set up"
# Modules, as they are named after `hta.`, and names of HTA.
MODULES = {
    "analyzers": _ITS_OWN,
    "common": _ITS_OWN,
    "configs": _READER,
    "memory_analysis": "ask `htk memory-timeline` or `htk memory-peaks`",
    "utils": "shorten_name is htk.hta.shorten_name; frames of TraceDiff have flat columns",
}
NAMES = {
    **dict.fromkeys(("CallGraph", "CallStackGraph", "Timeline", "TraceSymbolTable"), _ITS_OWN),
    **dict.fromkeys(("Filter", "GPUKernelFilter", "IterationIndexFilter", "NameFilter"), _ITS_OWN),
    **dict.fromkeys(("CompositeFilter", "TimeRangeFilter", "execution_trace"), _ITS_OWN),
    **dict.fromkeys(("HtaConfig", "ParserConfig"), _READER),
    "CPGraph": "critical_path_analysis() gives the path itself, overlay_critical_path_analysis() "
    "writes it",
    "MemoryAnalysis": MODULES["memory_analysis"],
    "Trace": "open a trace by htk.open(PATH); HTA's own, parsed, is "
    "TraceAnalysis(trace_dir=PATH, include_last_profiler_step=True).t",
    "flatten_column_names": MODULES["utils"],
    "restore_cpgraph": "a path is made again in the time in which a graph is read; ask "
    "critical_path_analysis() again",
}


class NamesOfHta:
    """A finder that is asked last: says what to use in place of a module of HTA's."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name.startswith("htk.hta."):
            module = name.removeprefix("htk.hta.")
            if module in MODULES:
                raise ImportError(f"htk.hta has no {module}: {MODULES[module]}", name=name)
        return None


def refuse_hta_name(name: str) -> None:
    """Raise ImportError with what to use for a name of HTA's; AttributeError for any other."""
    if name in NAMES:
        raise ImportError(f"htk.hta has no {name}: {NAMES[name]}", name=f"htk.hta.{name}")
    raise AttributeError(f"module 'htk.hta' has no attribute {name!r}")


def register_hta_finder() -> None:
    """Have imports of HTA's modules below `htk.hta` say what to use."""
    if not any(isinstance(finder, NamesOfHta) for finder in sys.meta_path):
        sys.meta_path.append(NamesOfHta())
