"""From what a user names to a trace: find the files, ask the parsers, tell the ranks apart."""

import importlib.util
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from htk import plugins
from htk.core.parser import Parsed, ParseOptions, Parser, Source
from htk.errors import HtkError, MalformedTrace, TraceError, UnknownFormat
from htk.io.raw_files import reason
from htk.io.sources import content_identity, head, resolve
from htk.io.store import Entry, MemoryEntry, Store
from htk.io.table_code import plugin_code
from htk.parsers import parsers
from htk.trace.cycles import cycles_of
from htk.trace.file import FileRecording, TraceFile
from htk.trace.placing import placed
from htk.trace.ranks import ranks_of
from htk.trace.trace import Trace

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
) -> tuple[list[FileRecording], list[str], list[tuple[str, str]]]:
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
) -> list[FileRecording]:
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
        FileRecording(source, entry.parsed.parser, entry, _process_of(entry, k))
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


def _parts(read: list[FileRecording], options: OpenOptions) -> list[TraceFile]:
    """Give each file its rank and cycle; leave out a second recording of the same time."""
    ranks = ranks_of(read, options.rank, options.rank_pattern)
    groups: dict[tuple[str, int | None], list[tuple[FileRecording, str]]] = defaultdict(list)
    for item, (rank, rank_from) in zip(read, ranks, strict=True):
        key = (item.parser, rank) if rank is not None else (item.source.name, None)
        groups[key].append((item, rank_from))
    parts: list[TraceFile] = []
    for (_, rank), items in groups.items():
        parts += cycles_of(rank, items)
    return sorted(parts, key=lambda p: (p.rank is None, p.rank or 0, p.cycle, p.file))


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
