"""Ascend: `kernel_details.csv` of a folder `ASCEND_PROFILER_OUTPUT` that holds tables alone.

Its rows are told again as Kineto's JSON, which its parser reads: tasks become kernels with their
start, length, stream and blocks; collectives too, with their groups from `communication.json`
beside it, or from there alone where the table has none; the ids of steps become steps of the NPU,
from the first task of each to that of the next. Nothing of the host is in these tables. Not read:
shapes, the counters of cores, waiting times, sizes of the parts of collectives.

Beside a timeline or a database the tables are not opened: `htk verify` holds these to them.
"""

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal, InvalidOperation

import msgspec

from htk.base.core.humanize import format_bytes
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.ascend_tasks import FIRST_GROUP, with_rank_beside
from htk.parsers.common.log_records import Issues, read_whole, whole_number
from htk.parsers.kineto.retold import parse_retold, to_stamp

NAME = "ascend_tables"

_SNIFF = re.compile(
    rb"\A(?:\xef\xbb\xbf)?(?=[^\n]{0,2000}\bName,)(?=[^\n]{0,2000}\bAccelerator Core,)"
    rb"(?=[^\n]{0,2000},Start Time\(us\),Duration\(us\))"
)
_COLLECTIVES = "communication.json"
_COMMUNICATES = ("HCCL", "COMMUNICATION")
_FARTHEST_US = 1 << 52
_MOST_BYTES = 1 << 30  # of the collectives, which are read at once


def sniff(head: Head) -> bool:
    return bool(_SNIFF.match(head.data))


def parse(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    text = read_whole(source, issues, options.progress).decode("utf-8-sig", "replace")
    rows = list(_select_timed(csv.DictReader(io.StringIO(text, newline="")), issues))
    calls = _collectives_beside(source, issues)
    if not any(row.communicates for row in rows):
        rows += calls
    if not rows:
        raise MalformedTrace(f"{source.name}: a table of Ascend's kernels without a whole row")
    groups = {call.name: call.group for call in calls}
    events = [*_build_kernels(rows, groups), *_build_steps(rows)]
    parsed = parse_retold(msgspec.json.encode({"traceEvents": events}), source, options, issues)
    return with_rank_beside(parsed, source)


class _Task(msgspec.Struct, frozen=True):
    """A row of the table, or a collective."""

    name: str
    start: int
    end: int
    device: int = 0
    stream: int = 0
    step: int | None = None
    blocks: int | None = None
    communicates: bool = False
    group: str = ""


def _select_timed(rows: Iterable[Mapping[str, str | None]], issues: Issues) -> Iterator[_Task]:
    """Yield the rows that have their times; the others are counted."""
    broken = 0
    for row in rows:
        start = _parse_nanoseconds(row.get("Start Time(us)"), 1000)
        length = _parse_nanoseconds(row.get("Duration(us)"), 1000)
        if start is None or length is None or length < 0 or not row.get("Name"):
            broken += 1
            continue
        yield _Task(
            str(row["Name"]).strip(),
            start,
            start + length,
            _read_number(row, "Device_id") or 0,
            _read_number(row, "Stream ID") or 0,
            _read_number(row, "Step Id"),
            _read_number(row, "Block Dim", "Block Num"),
            (row.get("Accelerator Core") or "").strip() in _COMMUNICATES,
        )
    if broken:
        issues.add("no_time", "rows without a name, a start or a length", count=broken)


def _read_number(row: Mapping[str, str | None], *columns: str) -> int | None:
    """Return the first of these columns that holds a whole number."""
    numbers = (whole_number((row.get(column) or "").strip()) for column in columns)
    return next((number for number in numbers if number is not None), None)


def _parse_nanoseconds(value: object, unit: int) -> int | None:
    """Return a time of so many ns a unit, digit by digit; None: it is none."""
    try:
        time = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    return int((time * unit).to_integral_value()) if abs(time) < _FARTHEST_US else None


def _collectives_beside(source: Source, issues: Issues) -> list[_Task]:
    """Return the collectives of `communication.json` in the table's folder, by their times."""
    if source.path is None:
        return []
    try:
        with source.path.with_name(_COLLECTIVES).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            issues.add("too_large", f"{_COLLECTIVES} of more than {format_bytes(_MOST_BYTES)}")
            return []
        content = msgspec.json.decode(text)
    except (OSError, ValueError, RecursionError):
        return []
    return [call for step, kinds in _list_members(content) for call in _of_step(step, kinds)]


def _of_step(step: str, kinds: object) -> Iterator[_Task]:
    for _, calls in _list_members(kinds):
        for name, call in _list_members(calls):
            times = dict(_list_members(dict(_list_members(call)).get("Communication Time Info")))
            start = _parse_nanoseconds(times.get("Start Timestamp(us)"), 1000)
            length = _parse_nanoseconds(times.get("Elapse Time(ms)"), 1_000_000)
            if start and length is not None and length >= 0:  # sums of all calls have no start
                task, _, group = name.partition("@")
                number = whole_number(step.removeprefix("step"))
                yield _Task(
                    task, start, start + length, step=number, communicates=True, group=group
                )


def _list_members(value: object) -> Iterable[tuple[str, object]]:
    return value.items() if isinstance(value, dict) else ()


def _build_kernels(rows: list[_Task], groups: Mapping[str, str]) -> Iterator[Fields]:
    streams: dict[str, int] = {}
    for row in rows:
        arguments: Fields = {"device": row.device, "stream": row.stream}
        if row.communicates:
            group = groups.get(row.name, row.group)
            arguments["stream"] = streams.setdefault(group, FIRST_GROUP + len(streams))
            arguments["Collective name"] = re.sub(r"^hcom_|_+\d.*$|_", "", row.name).lower()
            if group:
                arguments["Process Group Name"] = group
        elif row.blocks:
            arguments["grid"] = [row.blocks, 1, 1]
        yield _build_event(row.name, "kernel", row.start, row.end, arguments)


def _build_steps(rows: list[_Task]) -> Iterator[Fields]:
    """Yield the steps of each NPU: each reaches to the first task of the next."""
    begins: dict[int, dict[int, int]] = defaultdict(dict)
    ends: Counter[int] = Counter()
    for row in rows:
        ends[row.device] = max(ends[row.device], row.end)
        if row.step is not None:
            begin = begins[row.device].get(row.step, row.start)
            begins[row.device][row.step] = min(begin, row.start)
    for device, of_device in begins.items():
        steps = sorted(of_device.items(), key=lambda item: item[1])
        followed = [begin for _, begin in steps[1:]]
        for (step, begin), end in zip(steps, [*followed, ends[device]], strict=True):
            name = f"ProfilerStep#{step}"
            yield _build_event(name, "gpu_user_annotation", begin, end, {"device": device})


def _build_event(name: str, category: str, start: int, end: int, arguments: Fields) -> Fields:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": arguments["device"],
        "tid": arguments.get("stream", "steps"),
        "ts": to_stamp(start),
        "dur": to_stamp(end - start),
        "args": arguments,
    }
