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

import msgspec

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.ascend_tasks import CALL, COPIES, TASKS_QUEUE, WAITS, with_rank_beside
from htk.parsers.common.log_records import Issues, list_of, read_json, whole_number
from htk.parsers.kineto.retold import parse_retold

NAME = "ascend"

# Times are texts, which no other profiler's are, or a process tells.
_SNIFF = re.compile(
    rb'\A\s*\[\s*\{(?s:.{0,400}?"ts"\s*:\s*"\d{13,17}\.\d{3}\d*"|.*"Ascend Hardware")'
)
_HARDWARE, _CANN = "Ascend Hardware", "CANN"
_HCCL = ("HCCL", "Communication")
_SUMS = "Overlap Analysis"
_ID_OF_ARROW = {"HostToDevice": "correlation", "async_npu": "External id"}


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
    return with_rank_beside(parsed, source)


class _Timeline:
    """What a timeline's metadata and arrows tell of its events."""

    def __init__(self, events: list[Fields]) -> None:
        self.unread: Counter[str] = Counter()
        self._names: dict[tuple[str, ...], str] = {}  # of processes and threads
        self._ids: dict[tuple[str, ...], Fields] = defaultdict(dict)  # of what begins at a place
        self._launched: list[Fields] = []  # arrows from the host to the device
        ends: dict[tuple[str, ...], tuple[str, ...]] = {}
        for event in events:
            arguments = event.get("args")
            if event.get("ph") == "M" and isinstance(arguments, dict):
                self._names[(str(event.get("name")), *_name_lane(event))] = str(
                    arguments.get("name")
                )
            elif event.get("ph") == "f":
                ends[_build_arrow_key(event)] = _build_place_key(event)
        hardware = {key[1] for key, name in self._names.items() if name == _HARDWARE}
        self._devices = sorted(hardware)
        for number, event in enumerate((e for e in events if e.get("ph") == "s"), 1):
            end = ends.get(_build_arrow_key(event))
            name = _ID_OF_ARROW.get(str(event.get("cat")))
            if end is None or name is None:
                continue
            # An operator launches several tasks, each of which has an arrow.
            self._ids[end][name] = self._ids[_build_place_key(event)].setdefault(name, number)
            if name == "correlation":
                self._launched.append(event)

    def retell(self, events: Iterable[Fields]) -> Iterator[Fields]:
        """Yield the events as Kineto's."""
        places = set()
        for event in events:
            if event.get("ph") == "X":
                places.add(_build_place_key(event))
                process = self._names.get(("process_name", str(event.get("pid"))), "")
                if members := self._retell_event(event, process):
                    yield {**event, **members}
                elif process != _SUMS:
                    self.unread[process or "without a name"] += 1
            elif event.get("cat") == "fwdbwd" or event.get("ph") in ("C", "i"):
                yield event
        for arrow in self._launched:
            if _build_place_key(arrow) not in places:  # CANN's own calls were not recorded
                when = {key: arrow.get(key) for key in ("pid", "tid", "ts")}
                call = {"ph": "X", "dur": 0, "cat": CALL, "name": "HostToDevice"}
                yield {**when, **call, "args": self._ids[_build_place_key(arrow)]}

    def _retell_event(self, event: Fields, process: str) -> Fields | None:
        """Return what an event is to Kineto; None: nothing that is read."""
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        category = event.get("cat")
        thread = self._names.get(("thread_name", *_name_lane(event)), "")
        ids = self._ids.get(_build_place_key(event), {})
        if process == _HARDWARE or (process in _HCCL and "Communication" in thread):
            task = str(arguments.get("Task Type") or "")
            category = "cuda_sync" if WAITS.search(task) else "kernel"
            category = "gpu_memcpy" if COPIES.search(task) else category
            owner = str(event.get("pid"))
            device = self._devices.index(owner) if owner in self._devices else 0
            stream = whole_number(arguments.get("Stream Id", event.get("tid")))
            return {"cat": category, "args": {"device": device, "stream": stream, **ids}}
        if process == _CANN or category in TASKS_QUEUE:
            category = CALL
        return {"cat": category, "args": {**arguments, **ids}} if category else None


def _name_lane(event: Fields) -> tuple[str, ...]:
    """Return the process of an event, and its thread unless it names a process."""
    is_of_process = event.get("name") == "process_name"
    return tuple(str(event.get(key)) for key in (("pid",) if is_of_process else ("pid", "tid")))


def _build_arrow_key(event: Fields) -> tuple[str, ...]:
    return str(event.get("cat")), str(event.get("id"))


def _build_place_key(event: Fields) -> tuple[str, ...]:
    return tuple(str(event.get(key)) for key in ("pid", "tid", "ts"))
