"""From what a user names to a trace: find the files, ask the parsers, tell the ranks apart."""

import importlib.util
import os
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from htk import plugins
from htk.core.parser import Parsed, ParseOptions, Parser, Source
from htk.errors import HtkError, MalformedTrace, TraceError, UnknownFormat, UnknownRank
from htk.io.raw_files import reason
from htk.io.sources import content_identity, head, rank_from_name, resolve
from htk.io.store import Entry, MemoryEntry, Store
from htk.io.table_code import plugin_code
from htk.parsers import parsers
from htk.schema import TABLES
from htk.trace.file import TraceFile
from htk.trace.placing import placed
from htk.trace.trace import Trace

_CALLED_BY_RANK = ("flight_recorder",)  # files called by some prefix and the rank, no more
_POLLED = ("flight_recorder",)  # dumped again and again, each time with what was before

# What lies beside simulated and recorded traces, and tables and settings of any kind: those that
# hold no rows of a job are passed over.
_SIDECARS = ("truth.json", "measured.json", ".csv", ".parquet", ".yaml", ".yml")

SAMPLE = Path(__file__).parents[1] / "sample"  # the recording that comes with htk

Inputs = str | Path | Sequence[str | Path]


class Progress:
    """Told how far the reading of each file is. This one does not care."""

    def start(self, files: int, stored_bytes: int) -> None: ...

    def advance(self, stored_bytes: int) -> None: ...

    def done(self, file: str) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class OpenOptions:
    """How to open: all that a face may set."""

    cache: bool = True
    strict: bool = False
    rank: int | None = None  # for one file that does not name its rank
    rank_pattern: str | None = None  # a regular expression whose group finds it in each name
    keep_unknown_arguments: bool = False
    cache_by_content: bool = False  # a hash of the bytes instead of size and time
    time_unit: str | None = None  # of rows whose columns do not say it: s, ms, us or ns
    progress: Progress = field(default_factory=Progress)


@dataclass(frozen=True)
class _Read:
    source: Source
    parser: str
    entry: Entry
    process: int = 0  # which of the file's processes


def open_trace(inputs: Inputs, options: OpenOptions | None = None) -> Trace:
    """Every file that the inputs name, as one trace."""
    options = options or OpenOptions()
    sources = resolve(with_sample(inputs))
    read, unread, failed = _read_all(sources, options)
    if not read:
        raise _nothing(sources, unread, failed)
    parts = placed(_parts(read, options))
    if options.strict:
        _refuse_losses(parts, unread, failed)
    return Trace(tuple(parts), unread=tuple(unread), failed=tuple(failed))


def with_sample(inputs: Inputs) -> Inputs:
    """`sample` is the set that comes with the package, unless a file is called so."""
    if inputs == "sample" and not Path("sample").exists():
        return SAMPLE
    return inputs


def _read_all(
    sources: list[Source], options: OpenOptions
) -> tuple[list[_Read], list[str], list[tuple[str, str]]]:
    """Files on threads: the compiled engine gives up the GIL while it parses."""
    store = Store() if options.cache else None
    stopped = threading.Event()
    options.progress.start(len(sources), sum(s.size or 0 for s in sources))
    read, unread, failed = [], [], []
    with ThreadPoolExecutor(min(len(sources), os.cpu_count() or 1) or 1) as pool:
        jobs = [pool.submit(_read_one, s, store, options, stopped) for s in sources]
        try:
            for source, job in zip(sources, jobs, strict=True):
                try:
                    read += job.result()
                except UnknownFormat:
                    if not source.file_name.endswith(_SIDECARS) or len(sources) == 1:
                        unread.append(source.name)
                except TraceError as error:
                    failed.append((source.name, str(error)))
                except HtkError:
                    raise
                except Exception as error:  # no one file keeps the others from being read
                    failed.append((source.name, _unforeseen(source.name, error)))
        except BaseException:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            options.progress.stop()
    return read, unread, failed


def _unforeseen(name: str, error: Exception) -> str:
    """What is said of a file whose damage its parser did not foresee."""
    if os.environ.get("HTK_TRACEBACK"):
        raise error
    if isinstance(error, MemoryError):
        return f"{name}: needs more memory than there is"
    return (
        f"{name}: could not be read; is it damaged? If not, please report it "
        f"({type(error).__name__}: {reason(error)[:200]})"
    )


def _read_one(
    source: Source, store: Store | None, options: OpenOptions, stopped: threading.Event
) -> list[_Read]:
    """Each process of a file."""
    parse_options = ParseOptions(
        options.keep_unknown_arguments, _watched(options.progress, stopped), options.time_unit
    )
    if options.cache_by_content:
        source = replace(source, identity=content_identity(source))
    if store is None or source.identity is None:
        parsed = _parse(source, parse_options)
        entries: Sequence[Entry] = [MemoryEntry(process) for process in (parsed, *parsed.others)]
    else:
        key = store.key(source, parse_options, _plugin_codes())
        entries = store.find_all(key) or store.save_all(
            key, _parse(source, parse_options), source.name
        )
    options.progress.done(source.name)
    return [
        _Read(source, entry.parsed.parser, entry, _process_of(entry, k))
        for k, entry in enumerate(entries)
    ]


def _process_of(entry: Entry, position: int) -> int:
    """Which of its file's processes an entry is; the cycles of one share its number."""
    return int(str(entry.parsed.facts.get("process", position)))


def _parse(source: Source, options: ParseOptions) -> Parsed:
    """Return what the first parser that recognises a file reads of it."""
    parser = _parser_for(source)
    parsed = parser.parse(source, options)
    others = tuple(replace(process, parser=parser.NAME) for process in parsed.others)
    return replace(parsed, parser=parser.NAME, others=others)


@cache
def _plugin_codes() -> tuple[str, ...]:
    """Return a hash of the code of each parser that another package adds, without importing it."""
    codes = []
    for entry in plugins.added("htk.parsers").values():
        try:
            spec = importlib.util.find_spec(entry.module)
        except (ImportError, ValueError):  # its package is damaged: it will be left out, too
            spec = None
        if spec is not None and spec.origin is not None:
            codes.append(plugin_code(spec.origin))
    return tuple(codes)


def _watched(progress: Progress, stopped: threading.Event) -> Callable[[int], None]:
    """Tells how much further it is, and ends the reading when the user gave up."""
    last = 0

    def tell(stored_bytes: int) -> None:
        nonlocal last
        if stopped.is_set():
            raise TraceError("stopped")
        progress.advance(stored_bytes - last)
        last = stored_bytes

    return tell


def _parser_for(source: Source) -> Parser:
    start = head(source)
    if not start.data.strip():
        raise MalformedTrace(f"{source.name}: empty file, expected a trace; was the run killed?")
    for parser in parsers():
        if parser.sniff(start):
            return parser
    names = ", ".join(p.NAME for p in parsers())
    raise UnknownFormat(
        f"{source.name}: not a trace that htk knows ({names}); `htk formats` shows what it reads"
    )


def _nothing(sources: list[Source], unread: list[str], failed: list[tuple[str, str]]) -> TraceError:
    if failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        return MalformedTrace(failed[0][1] + more)
    if len(unread) == 1:
        return UnknownFormat(
            f"{unread[0]}: not a trace that htk knows; `htk formats` shows what it reads"
        )
    names = ", ".join(s.name for s in sources[:3])
    return UnknownFormat(
        f"none of {len(sources)} files is a trace that htk knows ({names}, …); "
        "`htk formats` shows what it reads"
    )


def _parts(read: list[_Read], options: OpenOptions) -> list[TraceFile]:
    """Give each file its rank and cycle; leave out a second recording of the same time."""
    ranks = _ranks(read, options)
    groups: dict[tuple[str, int | None], list[tuple[_Read, str]]] = defaultdict(list)
    for item, (rank, rank_from) in zip(read, ranks, strict=True):
        key = (item.parser, rank) if rank is not None else (item.source.name, None)
        groups[key].append((item, rank_from))
    parts: list[TraceFile] = []
    for (_, rank), items in groups.items():
        parts += _cycles(rank, items)
    return sorted(parts, key=lambda p: (p.rank is None, p.rank or 0, p.cycle, p.file))


def _ranks(read: list[_Read], options: OpenOptions) -> list[tuple[int | None, str]]:
    """The rank of each file and how it is known; never a guess between several files."""
    ranks = [_rank_of(item, options) for item in read]
    lost = [k for k, (rank, _) in enumerate(ranks) if rank is None and _needs_rank(read[k])]
    if lost and len({item.source.name for item in read}) == 1:
        first, rank_from = (0, "only file") if options.rank is None else (options.rank, "given")
        for k in lost:
            ranks[k] = (first + read[k].process, rank_from)
    elif lost and (by_device := _ranks_by_device([read[k] for k in lost])):
        for k, rank in zip(lost, by_device, strict=True):
            ranks[k] = (rank, "GPU of the host")
    elif lost:
        names = ", ".join(read[k].source.file_name for k in lost[:3])
        raise UnknownRank(
            f"{len(lost)} of {len(read)} files do not say which rank they are ({names}"
            f"{', …' if len(lost) > 3 else ''}); give a pattern whose group finds it in the "
            "name: --rank-pattern 'node-(\\d+)'"
        )
    return ranks


def _ranks_by_device(read: list[_Read]) -> list[int] | None:
    """The GPU of each recording, if all are of one host and each has a GPU of its own that its
    format numbers as the host does."""
    facts = [item.entry.parsed.facts for item in read]
    devices = [f.get("host_device") for f in facts]
    hosts = {f.get("host") for f in facts}
    recorded = [d for d in devices if isinstance(d, int)]
    alone = len(hosts) == 1 and None not in hosts and len(set(recorded)) == len(read)
    return recorded if alone else None


def _rank_of(item: _Read, options: OpenOptions) -> tuple[int | None, str]:
    """A name gives the rank of a file's first process; its others count on from there."""
    if options.rank_pattern is not None:
        matched = _rank_by_pattern(item.source.name, options.rank_pattern)
        return None if matched is None else matched + item.process, "given"
    parsed = item.entry.parsed
    if parsed.rank is not None:
        return parsed.rank, str(parsed.facts.get("rank_from") or "distributedInfo")
    named = rank_from_name(item.source.name)
    if named is None and item.parser in _CALLED_BY_RANK:
        named = _rank_at_end(item.source.name)
    return (named + item.process, "file name") if named is not None else (None, "")


def _rank_at_end(name: str) -> int | None:
    """The digits that end a name, before `.json` if it has that: how flight recorder dumps are
    called."""
    match = re.search(r"(?:^|[\\/!])[^.\\/!]*?(\d{1,7})(?:\.json)?$", name)
    return int(match[1]) if match else None


def _rank_by_pattern(name: str, pattern: str) -> int | None:
    try:
        match = re.search(pattern, name)
        return int(match[1]) if match else None
    except (re.error, IndexError, ValueError) as error:
        raise UnknownRank(f"--rank-pattern {pattern!r}: {error}") from None


def _needs_rank(item: _Read) -> bool:
    """Whether any of its tables speaks of a rank without naming it."""
    exempt = ("ranks", "parse_issues")
    return any(
        name not in exempt and "rank" in TABLES[name].names and "rank" not in table.column_names
        for name, table in item.entry.tables.items()
        if table.num_rows
    )


def _cycles(rank: int | None, items: list[tuple[_Read, str]]) -> list[TraceFile]:
    """Return the recordings of one rank in order of time, without copies and older recordings.

    Two that overlap in time are two processes, both kept. Of two whose steps do not go on the newer
    is the recording, and the older is named.
    """
    kept: list[tuple[_Read, str]] = []
    same_rank: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)
    for item in sorted(items, key=lambda i: (_start(i[0]), i[0].source.name)):
        name = item[0].source.name
        goes_on = any(_same_process(recording, item[0]) for recording, _ in kept)
        if kept and rank is not None and not goes_on:
            last = kept[-1][0]
            if last.source is not item[0].source and _is_copy(last, item[0]):
                same_rank[last.source.name, last.process].append(("copy_of_a_file", name))
                continue
            if _overlap(last, item[0]):
                if item[0].parser not in _POLLED:
                    same_rank[name, item[0].process].append(("same_rank", last.source.name))
            elif _begins_anew(last, item[0]):
                same_rank[name, item[0].process] += [
                    ("older_recording", recording.source.name) for recording, _ in kept
                ]
                kept = []
        kept.append(item)
    parts: list[TraceFile] = []
    for recording, rank_from in kept:
        before = _first_event(parts, kept, recording)
        name = recording.source.name
        part = TraceFile(
            recording.entry, name, rank, len(parts), rank_from, before, recording.parser
        )
        size, others = recording.source.size, tuple(same_rank[name, recording.process])
        parts.append(replace(part, file_bytes=size, same_rank_files=others))
    return parts


def _same_process(recording: _Read, other: _Read) -> bool:
    """Whether two recordings are cycles of one process of one file."""
    return recording.source is other.source and recording.process == other.process


def _first_event(parts: list[TraceFile], kept: list[tuple[_Read, str]], recording: _Read) -> int:
    """Return what is added to a recording's events; the cycles of a file share its count."""
    for part, (earlier, _) in zip(parts, kept, strict=False):
        if _same_process(earlier, recording):
            return part.first_event
    return parts[-1].first_event + _events_of(parts[-1].entry) if parts else 0


def _is_copy(recording: _Read, other: _Read) -> bool:
    """Whether two files hold one recording, as a trace and its compressed copy do."""
    timed = None not in _times(recording)  # two files that tell no times may be of any time
    return timed and _events(recording) == _events(other) and _times(recording) == _times(other)


def _times(item: _Read) -> tuple[object, object]:
    facts = item.entry.parsed.facts
    return facts.get("start_ns"), facts.get("end_ns")


def _begins_anew(earlier: _Read, later: _Read) -> bool:
    """Whether the steps of the later recording do not go on where the other's ended."""
    before, after = _steps(earlier), _steps(later)
    return bool(before and after) and min(after) <= max(before)


def _steps(item: _Read) -> list[int]:
    table = item.entry.tables.get("annotations")
    return [] if table is None else [s for s in table["step"].unique().to_pylist() if s is not None]


def _overlap(recording: _Read, other: _Read) -> bool:
    """Both recorded the same time: copies of a file, or files of two jobs in one folder."""
    a, b = recording.entry.parsed.facts, other.entry.parsed.facts
    if None in (a.get("start_ns"), a.get("end_ns"), b.get("start_ns"), b.get("end_ns")):
        return False
    return _start(other) < int(str(a["end_ns"])) and _start(recording) < int(str(b["end_ns"]))


def _start(item: _Read) -> int:
    return int(str(item.entry.parsed.facts.get("start_ns") or 0))


def _events(item: _Read) -> int:
    return _events_of(item.entry)


def _events_of(entry: Entry) -> int:
    facts = entry.parsed.facts
    return int(str(facts.get("file_rows") or facts.get("events") or 0))


def _refuse_losses(
    parts: list[TraceFile], unread: list[str], failed: list[tuple[str, str]]
) -> None:
    """--strict: any loss is an error."""
    if failed:
        raise MalformedTrace(failed[0][1])
    if unread:
        raise UnknownFormat(f"{unread[0]}: not a trace that htk knows")
    for part in parts:
        issues = part.table("parse_issues")
        if issues.num_rows:
            first = issues.slice(0, 1).to_pylist()[0]
            where = "" if first["offset"] is None else f" at byte {first['offset']}"
            raise MalformedTrace(
                f"{part.file}: {first['kind']}{where} ({first['text']}); "
                "without --strict whole events are kept"
            )
