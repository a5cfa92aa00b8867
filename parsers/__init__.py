"""Every format that htk reads: one module each, asked in this order.

In: bytes of a file. Out: tables of the vocabulary, and what was damaged. May import base, physics
and quantities.

What is told by one sure mark comes first. A bare array of events may be NCCL's plugin, so that is
asked before kineto. A log may hold lines of several formats: it is called by the first of
`common.line_formats`, and all are read.
"""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from typing import cast

from htk.base import plugins
from htk.base.core.parser import Parser

ORDER = (
    "rocpd",
    "ascend_db",
    "nsight",
    "rocprof_json",
    "rocprof_perfetto",
    "kineto_perfetto",
    "xplane",
    "flight_recorder",
    "memory_snapshot",
    "memory_timeline",
    "inspector",
    "operation_rows",
    "operation_timeline",
    "profiler_plugin",
    "execution_trace",
    "kernel_stacks",
    "proton",
    "ascend",
    "ascend_tables",
    "kineto",
    "ras",
    "rccl_replay",
    "nccl_tests",
    "inspector_prometheus",
    "link_metrics",
    "nccl_debug",
    "watchdog",
    "debug_server",
    "python_stacks",
    "job_layout",
    "job_log",
)


# How PyTorch's profiler begins its files, and nobody else: most files need no other parser.
_OF_PYTORCH = re.compile(rb'\s*\{\s*"schemaVersion"\s*:\s*\d+\s*,\s*"')


def in_turn(beginning: bytes = b"") -> Iterator[Parser]:
    """Yield every parser in the order in which they are asked; those of other packages last.

    Each is imported when it is its turn: a file that is recognised needs none of the later ones,
    and one whose tables are cached needs none at all.
    """
    first = ("kineto",) if _OF_PYTORCH.match(beginning) else ()
    for name in (*first, *ORDER):
        yield cast(Parser, importlib.import_module(f"htk.parsers.{name}"))
    yield from plugins.load_added("htk.parsers")


@cache
def list_parsers() -> tuple[Parser, ...]:
    """Return every parser in the order in which they are asked."""
    return tuple(in_turn())
