"""Ascend: `trace_view.json` of torch_npu, and the timeline that msprof itself writes.

A bare array of events whose processes say by name what they hold. They are told again as Kineto's
JSON, which its parser reads: tasks on the NPU and collectives become kernels, CANN's calls become
launching calls, arrows from the host to the device become their ids. Not read: Overlap Analysis,
which is sums of the others, and counted as not read the planes of HCCL and all other processes.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.log_records import Issues, list_of, read_json, whole_number
from htk.parsers.kineto.retold import parse_retold

NAME = "ascend"

# Times are texts, which no other profiler's are, or a process tells.
_SNIFF = re.compile(
    rb'\A\s*\[\s*\{(?s:.{0,400}?"ts"\s*:\s*"\d{13,17}\.\d{3}\d*"|.*"Ascend Hardware")'
)
_HARDWARE, _CANN = "Ascend Hardware", "CANN"
_HCCL = ("HCCL", "Communication")
_WAITS = re.compile(r"WAIT|RECORD|NOTIFY", re.IGNORECASE)
_COPIES = re.compile(r"MEMCPY|SDMA|PCIE_DMA", re.IGNORECASE)
_TASKS_QUEUE = ("enqueue", "dequeue")  # between the thread of Python and the one that launches
_RANK_FILE = "profiler_info"
_RANK = re.compile(_RANK_FILE + r"_(\d{1,6})\.json")
_LEFT_OUT = ("Overlap Analysis",)
_CALL = "privateuse1_runtime"


def sniff(head: Head) -> bool:
    return bool(_SNIFF.match(head.data))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    try:
        content = json.loads(read_json(source, issues, options.progress))
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged: {error}") from None
    events = [event for event in list_of(content) if isinstance(event, dict)]
    if not events:
        raise MalformedTrace(f"{source.name}: an Ascend timeline without events")
    timeline = _Timeline(events)
    retold = [*timeline.retell(events)]
    for process, count in timeline.unread.items():
        issues.add("unread_events", f"events of process {process} are not read", count=count)
    parsed = parse_retold(msgspec.json.encode({"traceEvents": retold}), source, options, issues)
    rank = _rank_beside(source)
    if rank is None:
        return parsed
    return replace(parsed, rank=rank, facts={**parsed.facts, "rank_from": _RANK_FILE})


def _rank_beside(source: Source) -> int | None:
    """Return the rank that torch_npu writes into the name of a file beside the folder."""
    if source.path is None:
        return None
    with suppress(OSError):
        names = [path.name for path in source.path.parent.parent.iterdir()]
        ranks = {int(match[1]) for name in names if (match := _RANK.fullmatch(name))}
        return ranks.pop() if len(ranks) == 1 else None
    return None


class _Timeline:
    """What a timeline's metadata and arrows tell of its events."""

    def __init__(self, events: list[Fields]) -> None:
        self.processes: dict[Any, str] = {}
        self._threads: dict[Any, str] = {}
        self.unread: Counter[str] = Counter()
        ends: dict[str, dict[Any, Any]] = defaultdict(dict)  # what arrows of a category end at
        for event in events:
            arguments = event.get("args")
            if event.get("ph") == "M" and isinstance(arguments, dict):
                named = self.processes if event.get("name") == "process_name" else self._threads
                if event.get("name") in ("process_name", "thread_name"):
                    where = (event.get("pid"), event.get("tid"))
                    key = str(where[0]) if named is self.processes else str(where)
                    named[key] = str(arguments.get("name"))
            elif event.get("ph") == "f":
                ends[str(event.get("cat"))][str(event.get("id"))] = _place(event)
        npus = sorted(p for p, name in self.processes.items() if name == _HARDWARE)
        self._device = {process: number for number, process in enumerate(npus)}
        self._of_device: dict[Any, Fields] = defaultdict(dict)  # ids of what begins at a place
        self._of_host: dict[Any, Fields] = defaultdict(dict)
        self._calls = {_place(e) for e in events if e.get("ph") == "X"}
        self._arrows: list[Fields] = []
        for number, event in enumerate(e for e in events if e.get("ph") == "s"):
            end = ends[str(event.get("cat"))].get(str(event.get("id")))
            if event.get("cat") == "HostToDevice" and end is not None:
                self._of_device[end]["correlation"] = number + 1
                self._of_host[_place(event)]["correlation"] = number + 1
                self._arrows.append(event)
            elif event.get("cat") == "async_npu" and end is not None:
                own = self._of_host[_place(event)]
                own.setdefault("External id", number + 1)
                self._of_device[end]["External id"] = own["External id"]

    def retell(self, events: Iterable[Fields]) -> Iterator[Fields]:
        """Yield the events as Kineto's."""
        for event in events:
            if event.get("ph") != "X":
                if event.get("cat") == "fwdbwd" or event.get("ph") in ("C", "i"):
                    yield event
                continue
            process = self.processes.get(str(event.get("pid")), "")
            members = self._retold(event, process)
            if members:
                yield {**event, **members}
            elif process not in _LEFT_OUT:
                self.unread[process or "without a name"] += 1
        for event in self._arrows:
            if _place(event) not in self._calls:  # CANN's own calls were not recorded
                ids = self._of_host[_place(event)]
                call = {"ph": "X", "dur": 0, "cat": _CALL, "name": "HostToDevice", "args": ids}
                yield {**{key: event.get(key) for key in ("pid", "tid", "ts")}, **call}

    def _retold(self, event: Fields, process: str) -> Fields | None:
        """Return what an event is to Kineto; None: nothing that is read."""
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        if process == _HARDWARE:
            stream = whole_number(arguments.get("Stream Id"))
            return self._activity(event, arguments, stream)
        if process in _HCCL:
            thread = self._threads.get(str((event.get("pid"), event.get("tid"))), "")
            if "Communication" in thread:
                return self._activity(event, arguments, whole_number(event.get("tid")))
            return None
        if process == _CANN or event.get("cat") in _TASKS_QUEUE:
            return {"cat": _CALL, "args": {**arguments, **self._of_host[_place(event)]}}
        if event.get("cat"):
            return {"args": {**arguments, **self._of_host[_place(event)]}}
        return None

    def _activity(self, event: Fields, arguments: Fields, stream: int | None) -> Fields:
        task = str(arguments.get("Task Type") or "")
        what = "cuda_sync" if _WAITS.search(task) else "kernel"
        what = "gpu_memcpy" if _COPIES.search(task) else what
        device = self._device.get(str(event.get("pid")), 0)
        where = {"device": device, "stream": stream}
        return {"cat": what, "args": {**where, **self._of_device[_place(event)]}}


def _place(event: Fields) -> tuple[str, str, str]:
    return str(event.get("pid")), str(event.get("tid")), str(event.get("ts"))
