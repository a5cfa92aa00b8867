"""Shared by the readers of Ascend's files: names of tasks and calls, ranks beside folders."""

import re
from contextlib import suppress
from dataclasses import replace

from htk.base.core.parser import Parsed, Source

WAITS = re.compile(r"WAIT|RECORD|NOTIFY", re.IGNORECASE)
COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA", re.IGNORECASE)
TASKS_QUEUE = ("enqueue", "dequeue")  # between the thread of Python and the one that launches
CALL = "privateuse1_runtime"  # as Kineto files the calls of a device's library
FIRST_GROUP = 1_000_000  # streams of collectives, above those of tasks
_RANK_FILE = "profiler_info"
_RANK = re.compile(_RANK_FILE + r"_(\d{1,6})\.json")


def with_rank_beside(parsed: Parsed, source: Source) -> Parsed:
    """Return a recording with the rank that torch_npu writes into the name of a file beside its
    folder."""
    if source.path is None:
        return parsed
    with suppress(OSError):
        names = [path.name for path in source.path.parent.parent.iterdir()]
        ranks = {int(match[1]) for name in names if (match := _RANK.fullmatch(name))}
        if len(ranks) == 1:
            facts = {**parsed.facts, "rank_from": _RANK_FILE}
            return replace(parsed, rank=ranks.pop(), facts=facts)
    return parsed
