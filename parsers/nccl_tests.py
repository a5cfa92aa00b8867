"""Output of nccl-tests (and rccl-tests): a benchmark of one collective over sizes.

The text that every version prints (11 to 21 columns, maybe a time of day behind them; other
lines may lie between, and the `#` may be lost), and the JSON of 2.17.3 and later, versions 1 to 3,
also behind lines of text. Bandwidth is recomputed from size and time, which lose fewer digits.
Not read: the environment in the JSON, which may hold secrets.

Before mid-2025 the output did not name its collective. Where the file's name does not either, the
printed bus bandwidth is kept, and its ratio to the algorithm bandwidth tells the type if one alone
fits: `inferred_columns` says so.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.io.decompress import open_stream
from htk.base.mappings import Facts, Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import (
    READ,
    SKIPPED,
    UNKNOWN,
    LineFormat,
    LogPart,
    log_format,
    parse_log,
)
from htk.parsers.common.log_lines import LogLine, json_part
from htk.parsers.common.log_records import (
    Issues,
    compact_json,
    list_of,
    read_json,
    salvaged_json,
    table_of,
    text_or_none,
    whole_number,
)
from htk.physics.bandwidth import find_bus_factor

NAME = "nccl_tests"

_HEADER = rb"(?:^|\n)#?[ \t]{0,99}(?:out-of-place|size[ \t]{1,99}count[ \t]{1,99}type[ \t])"
_MARK = re.compile(
    rb"(?:^|\n)# ?(?:nccl-tests version|rccl-tests|Collective test starting)"
    rb"|(?:^|\n)#?[ \t]{0,9}nThread \d{1,9} nGpus \d|" + _HEADER
)
_JSON = re.compile(rb'"(?:out_of_place|average_bus_bandwidth|blocking_collectives)"\s{0,99}:')
_STARTING = re.compile(r"^# Collective test starting: (\w{1,64}?)_perf")
_DEVICE = re.compile(
    r"^#?\s{1,99}Rank\s{1,99}(\d{1,9}) (?:Group\s{1,99}\d{1,9} )?Pid\s{1,99}\d{1,9} "
    r"on\s{1,99}(\S{1,255}) device"
)
_THREADS = re.compile(r"^#?\s{0,9}nThread (\d{1,6}) nGpus (\d{1,6})")
_VERSION = re.compile(r"^# nccl-tests version (\S{1,64})(?:.{0,255}?nccl-library=(\d{1,9}))?")
_COLUMNS = re.compile(r"^#?\s{0,99}size\s{1,99}count\s{1,99}type\s")
_ROW = re.compile(
    r"^\s{0,99}(\d{1,19})\s{1,99}(\d{1,19})\s{1,99}([a-z]\w{0,31})\s{1,99}"
    r"(?:([a-z]{2,31})\s{1,99})?(\S.{0,999})$"
)
_NAMED = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|sendrecv"
    r"|hypercube|gather|scatter|reduce)_perf"
)
_FOOTER = ("Out of bounds values", "Avg bus bandwidth")
_LONGEST_LINE = 4096


def sniff(head: Head) -> bool:
    if _holds_json(head.data):
        return b'"traceEvents"' not in head.data
    return log_format(head) == NAME


def _holds_json(data: bytes) -> bool:
    """Return whether a report begins there, maybe behind lines of text and a launcher's tags."""
    if _JSON.search(data, 0, 1 << 16) is None:
        return False
    start = json_part(data[: 1 << 16])
    return start.startswith(b"{") and _JSON.search(start) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    with source.open() as file, open_stream(file) as stream:
        head = stream.read(1 << 16)
    return _parse_json(source, options) if _holds_json(head) else parse_log(source, options)


def _parse_json(source: Source, options: ParseOptions) -> Parsed:
    issues = Issues()
    run = _read_json(source, issues, options)
    if not run.points:
        raise MalformedTrace(f"{source.name}: nccl-tests output without a complete row")
    tables = {
        "bench_points": table_of("bench_points", run.points, of_one_rank=False),
        "parse_issues": issues.table(),
    }
    facts = run.facts() | {"truncated": issues.has("truncated")}
    return Parsed(tables, facts=facts)


@dataclass
class _Run:
    """What the head of the output says, and the points."""

    kind: str = "unknown"
    ranks: int | None = None
    hosts: set[str] = field(default_factory=set)
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    points: list[Fields] = field(default_factory=list)

    def facts(self) -> dict[str, object]:
        """Return what it says of the machine."""
        versions = compact_json(self.versions) if self.versions else None
        return {"versions": versions, "device_name": self.device, "events": len(self.points)}

    def add(self, common: Facts, half: Facts) -> None:
        """A point, where it was timed at all."""
        size = common["size_bytes"]
        time = half.get("time_us")
        if not time or time <= 0 or not size:
            return
        moved = size
        if self.kind == "hypercube" and self.ranks:
            moved = size * (self.ranks - 1) / self.ranks
        speed = moved / time / 1e3
        times = find_bus_factor(self.kind, self.ranks) if self.ranks else None
        self.points.append(
            {
                "source": NAME,
                "type": self.kind,
                "group_size": self.ranks,
                "nodes": len(self.hosts) or None,
                **common,
                **half,
                "algbw_gbps": speed,
                "busbw_gbps": half.get("busbw_gbps") if times is None else speed * times,
            }
        )

    def infer_type(self) -> None:
        """Name the collective by the ratio of its printed bandwidths, where only one type fits."""
        sharpest = max(self.points, key=lambda p: p["busbw_gbps"] or 0.0, default=None)
        if self.kind != "unknown" or sharpest is None or not sharpest["busbw_gbps"]:
            return
        fitting = _types_that_fit(sharpest, self.points)
        if len(fitting) == 1:
            (self.kind,) = fitting
            for point in self.points:
                times = find_bus_factor(self.kind, self.ranks or 0) or 0.0
                point |= {"type": self.kind, "busbw_gbps": point["algbw_gbps"] * times}
                point["inferred_columns"] = "type"


@dataclass(frozen=True)
class _Traits:
    """What the columns of a collective's table show."""

    reduces: bool
    has_root: bool = False
    is_checked_in_place: bool = True


_TRAITS = {
    "all_reduce": _Traits(reduces=True),
    "reduce_scatter": _Traits(reduces=True),
    "all_gather": _Traits(reduces=False),
    "all_to_all": _Traits(reduces=False, is_checked_in_place=False),
    "send_recv": _Traits(reduces=False, is_checked_in_place=False),
    "broadcast": _Traits(reduces=False, has_root=True),
    "reduce": _Traits(reduces=True, has_root=True),
    "gather": _Traits(reduces=False, has_root=True),
    "scatter": _Traits(reduces=False, has_root=True),
}
_ROUNDING_GBPS = 0.006  # half of the last digit printed, and a little for what it is computed from


def _types_that_fit(point: Facts, points: list[Fields]) -> list[str]:
    """Return the collectives whose factor and columns agree with a row of the table."""
    ratio = point["busbw_gbps"] / point["algbw_gbps"]
    error = ratio * _ROUNDING_GBPS / point["busbw_gbps"]
    in_place = [p["wrong"] is not None for p in points if p["in_place"]]
    is_checked = any(p["wrong"] is not None for p in points)
    shown = _Traits(
        reduces=point["redop"] is not None,
        has_root=(point["root"] if point["root"] is not None else -1) >= 0,
        is_checked_in_place=any(in_place),
    )
    fitting = []
    for kind, traits in _TRAITS.items():
        times = find_bus_factor(kind, point["group_size"] or 0)
        alike = (traits.reduces, traits.has_root) == (shown.reduces, shown.has_root)
        checks = not is_checked or traits.is_checked_in_place == shown.is_checked_in_place
        if times and abs(times - ratio) <= error and alike and checks:
            fitting.append(kind)
    return fitting


# Text


class _Table:
    """Reads the table that one writer prints, whatever lies between its lines."""

    def __init__(self, kind: str, issues: Issues) -> None:
        self._issues = issues
        self.run = _Run(kind)
        self._begun = self.has_ended = False

    def read(self, line: LogLine) -> str | None:
        text = line.text[:_LONGEST_LINE]
        run = self.run
        if self._begun and (match := _ROW.match(text)):
            return READ if _text_row(run, match, text, line.offset, self._issues) else UNKNOWN
        if match := _STARTING.match(text):
            run.kind = collective_type(match[1])
            self.has_ended = False
        elif match := _DEVICE.match(text):
            run.ranks = max(run.ranks or 0, int(match[1]) + 1)
            run.hosts.add(match[2])
            run.device = text.rpartition("] ")[2].strip() or run.device
        elif match := _THREADS.match(text):
            self._begun = True
            if run.ranks is None:
                run.ranks = int(match[1]) * int(match[2])  # until the devices are listed
        elif match := _VERSION.match(text):
            run.versions["nccl_tests"] = match[1]
            if match[2]:
                run.versions["nccl_version"] = match[2]
        elif _COLUMNS.match(text):
            self._begun = True
        elif text.startswith(_FOOTER, len(text) - len(text.lstrip("# "))):
            self.has_ended = True
        elif text.startswith("#") and (self._begun or run.ranks or run.versions):
            return SKIPPED
        else:
            return None
        return READ

    def finish(self) -> None:
        if self._begun and not self.has_ended:
            self._issues.add("truncated", "the output ends before its summary")
        if self._begun and not self.run.points:
            self._issues.add("no_rows", "the head of a table of nccl-tests, and no row under it")
        if self.run.ranks == 1 and self.run.points:
            self._issues.add("one_rank", "a benchmark of one rank: nothing went over a link")
        self.run.infer_type()


class _Reader:
    """Keeps a table for each writer that a launcher's tags tell apart."""

    def __init__(self, file_name: str, issues: Issues) -> None:
        self._kind = _kind_of_file(file_name)
        self._issues = issues
        self._tables: dict[tuple[str, int | None], _Table] = {}
        self._unused = _Table(self._kind, issues)

    def read(self, line: LogLine) -> str | None:
        writer = line.origin, line.rank
        table = self._tables.get(writer, self._unused)
        reading = table.read(line)
        if reading is not None and table is self._unused:
            self._tables[writer] = table
            self._unused = _Table(self._kind, self._issues)
        return reading

    def finish(self) -> LogPart:
        facts: dict[str, object] = {}
        points: list[Fields] = []
        for table in self._tables.values():
            table.finish()
            points += table.run.points
            facts |= {key: value for key, value in table.run.facts().items() if value}
        ended = [t for t in self._tables.values() if t.has_ended]
        note = {"source": NAME, "level": "ENDED", "text": "the benchmark printed its summary"}
        notes = [note] if ended and len(ended) == len(self._tables) else []
        tables = {"bench_points": points, "comm_notes": notes}
        return LogPart(tables, facts | {"events": len(points)})


LINES = LineFormat(NAME, _MARK, _Reader)


def _kind_of_file(name: str) -> str:
    match = _NAMED.search(PurePosixPath(name).name)
    return collective_type(match[1]) if match else "unknown"


def _text_row(run: _Run, match: re.Match[str], line: str, offset: int, issues: Issues) -> bool:
    """size count type redop [root], then time algbw busbw #wrong twice, maybe with more between."""
    rest = match[5].split()
    root = None
    if rest and re.fullmatch(r"-?\d+", rest[0]):  # times have a point
        root = int(rest.pop(0))
    rest = rest[: len(rest) // 2 * 2]  # without the time of day
    width = 8 if len(rest) == 16 else 4
    if len(rest) != 2 * width:
        issues.add("broken_row", line.strip()[:80], offset)
        return False
    common = {
        "size_bytes": int(match[1]),
        "count": int(match[2]),
        "dtype": match[3],
        "redop": None if match[4] == "none" else match[4],
        "root": root,
    }
    for half_number, cells in enumerate((rest[:width], rest[width:])):
        time = _read_number(cells[0])
        half: Fields = {"in_place": half_number == 1, "time_us": time}
        wrong = _read_number(cells[3])
        half |= {
            "wrong": None if wrong is None else int(wrong),
            "busbw_gbps": _read_number(cells[2]),
        }
        if width == 8:
            half |= {"time_us_min": _read_number(cells[4]), "time_us_max": _read_number(cells[5])}
        run.add(common, half)
    return True


def _read_number(text: Any) -> float | None:
    """Return a number; N/A, nan and text are none."""
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) < 1e18 else None


# JSON


def _read_json(source: Source, issues: Issues, options: ParseOptions) -> _Run:
    text = json_part(read_json(source, issues, options.progress)).decode("utf8", "replace")
    try:
        report, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError) as error:
        issues.add("truncated", f"the JSON is truncated or damaged ({error})", len(text))
        members = ("version", "args", "nccl_version", "config")
        report = salvaged_json(text, "results", members)
    if not isinstance(report, dict):
        raise MalformedTrace(f"{source.name}: expected the JSON of nccl-tests")
    run = _Run(_kind_of_file(source.file_name))
    command = report.get("args")
    if isinstance(command, list) and command:
        match = _NAMED.search(str(command[0]))
        run.kind = collective_type(match[1]) if match else run.kind
    _read_head(run, report)
    for result in list_of(report.get("results")):
        if isinstance(result, dict):
            _json_row(run, result)
    return run


def _read_head(run: _Run, report: Facts) -> None:
    config = report.get("config")
    devices = config.get("devices") if isinstance(config, dict) else None
    listed = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
    run.ranks = len(listed) or None
    run.hosts = {str(d.get("hostname")) for d in listed}
    run.device = text_or_none(listed[0].get("device_info")) if listed else None
    for key, name in (("version", "nccl_tests_json"), ("nccl_version", "nccl_version")):
        if isinstance(report.get(key), int):
            run.versions[name] = str(report[key])


def _json_row(run: _Run, result: Facts) -> None:
    common = {
        "size_bytes": whole_number(result.get("size")),
        "count": whole_number(result.get("count")),
        "dtype": text_or_none(result.get("type")),
        "redop": None if result.get("redop") == "none" else text_or_none(result.get("redop")),
        "root": whole_number(result.get("root")),
    }
    for variant in ("out_of_place", "in_place"):
        half = result.get(variant)
        if not isinstance(half, dict):
            continue
        each = result.get(f"{variant}_per_iter")
        spread = each if isinstance(each, dict) else {}
        wrong = _read_number(half.get("nwrong"))
        run.add(
            common,
            {
                "in_place": variant == "in_place",
                "time_us": _read_number(half.get("time", half.get("cpu_time"))),
                "time_us_min": _read_number(spread.get("min_us")),
                "time_us_max": _read_number(spread.get("max_us")),
                "wrong": None if wrong is None or wrong != wrong else int(wrong),
            },
        )
