"""From what a user names to a trace: find the files, ask the parsers, tell the ranks apart."""

import importlib.util
import os
import pickle
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from htk.base import plugins
from htk.base.core.parser import ParseOptions, Source
from htk.base.errors import HtkError, MalformedTrace, TraceError, UnknownFormat
from htk.base.io.entry import Entry, MemoryEntry
from htk.base.io.sources import content_identity, resolve_inputs
from htk.base.io.spill import Spill, columns_in_files
from htk.base.io.store import Store
from htk.base.io.store_key import is_unsigned_asked_for
from htk.base.io.table_code import plugin_code
from htk.base.spread.mapper import Lost, Mapper
from htk.base.spread.workplace import Workplace
from htk.traces.trace.beside import with_files_beside
from htk.traces.trace.common_cycles import with_common_cycles
from htk.traces.trace.confined import PICKLED, ConfinedReaders, is_from_outside
from htk.traces.trace.confined_tables import ConfinedTables
from htk.traces.trace.cycles import cycles_of
from htk.traces.trace.file import FileRecording, TraceFile, process_of
from htk.traces.trace.foreign import describe_foreign
from htk.traces.trace.jobs import choose_job
from htk.traces.trace.joined import JoinedTables, are_joined
from htk.traces.trace.parsing import describe_damage, parse_with, parser_of, read_beginning
from htk.traces.trace.placing import place_files
from htk.traces.trace.ranks import UNKNOWN, with_ranks, without_a_rank
from htk.traces.trace.serving import as_served
from htk.traces.trace.stored import stored_recordings
from htk.traces.trace.strict import refuse_losses
from htk.traces.trace.trace import Trace

_ENDINGS_OF_TEXT = (
    ".json", ".gz", ".zst", ".log", ".txt", ".jsonl", ".csv", ".sqlite", ".db", ".pb"
)  # fmt: skip
_LOOKED_AT = 8  # files whose names tell nothing

# What lies beside traces; tables and settings that hold no rows of a job are passed over.
SIDECARS = ("truth.json", "measured.json", ".csv", ".parquet", ".yaml", ".yml")
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
    job: str | None = None  # which of several jobs' files
    keep_unknown_arguments: bool = False
    keep_overruns: bool = False  # GPU activities that last over their followers, as they are
    cache_by_content: bool = False  # a hash of the bytes instead of size and time
    time_unit: str | None = None  # of rows whose columns do not say it: s, ms, us or ns
    within: tuple[Path, ...] = ()  # folders that files must lie in, links followed; none: anywhere
    confined: bool = False  # read every file as one from outside: in a process with limits
    progress: Progress = field(default_factory=Progress)
    on: str | None = None  # who reads and answers: threads, processes or ray
    memory_bytes: int | None = None  # that it may take; None: half of what is free


def open_trace(inputs: Inputs, options: OpenOptions | None = None) -> Trace:
    """Return every file that the inputs name, as one trace."""
    options = options or OpenOptions()
    work = Workplace(options.on, options.memory_bytes)
    stored = stored_recordings(inputs)
    sources = resolve_inputs(with_sample(inputs), options.within) if stored is None else []
    read, unread, failed = stored or read_all(sources, options, work)
    if not read:
        raise _explain_nothing(sources, unread, failed)
    placeable, rankless = _assign_ranks(read, options)
    failed += rankless
    parts = tuple(with_files_beside(place_files(placeable)))
    if options.strict:
        refuse_losses(parts, unread, failed)
    if options.cache and are_joined(parts):
        parts = tuple(replace(part, keeps_small=False) for part in parts)
    joined = JoinedTables(Store(), parts, work) if options.cache else None
    trace = Trace(parts, unread=tuple(unread), failed=tuple(failed), joined=joined, work=work)
    is_own = stored is not None and not is_unsigned_asked_for()
    outside = (file.parser in PICKLED or is_from_outside(file.source) for file in read)
    if (options.confined or any(outside)) and not is_own and not work.is_elsewhere:
        trace = replace(trace, confined=ConfinedTables())
    return as_served(trace)


def with_sample(inputs: Inputs) -> Inputs:
    """`sample` is the set that comes with the package, unless a file is called so."""
    if inputs == "sample" and not Path("sample").exists():
        return SAMPLE
    return inputs


def read_all(
    sources: list[Source], options: OpenOptions, work: Workplace
) -> tuple[list[FileRecording], list[str], list[tuple[str, str]]]:
    """Read every file; what is wrong with one keeps no other from being read."""
    options.progress.start(len(sources), sum(s.size or 0 for s in sources))
    read = []
    unread = []
    failed = []
    try:
        for source, outcome in zip(sources, _read_outcomes(sources, options, work), strict=True):
            if isinstance(outcome, list):
                read += outcome
            elif isinstance(outcome, UnknownFormat):
                if not source.file_name.endswith(SIDECARS) or len(sources) == 1:
                    unread.append(source.name)
            elif isinstance(outcome, TraceError):
                failed.append((source.name, str(outcome)))
            elif os.environ.get("HTK_TRACEBACK"):
                raise outcome
            else:
                failed.append((source.name, describe_damage(source.name, outcome)))
    finally:
        options.progress.stop()
    return read, unread, failed


_Outcome = list[FileRecording] | Exception


def _read_outcomes(
    sources: list[Source], options: OpenOptions, work: Workplace
) -> Iterator[_Outcome]:
    """Yield what each file gave, in their order."""
    store = Store() if options.cache else None
    stopped = threading.Event()
    expected = [] if work.is_elsewhere else _list_expected(sources, store, options)
    readers = ConfinedReaders(expected)
    read_here = partial(_read_outcome, store, options, readers, stopped)
    try:
        if work.is_elsewhere:
            yield from _outcomes_elsewhere(sources, options, work.mapper, read_here)
            return
        waited_for = bool(expected) or any(source.path is None for source in sources)
        reader = work.reader([source.size or 0 for source in sources], waited_for=waited_for)
        for outcome in reader.map(read_here, sources):
            yield TraceError(outcome.why) if isinstance(outcome, Lost) else outcome
    except BaseException:
        stopped.set()
        raise
    finally:
        readers.stop()


def _outcomes_elsewhere(
    sources: list[Source],
    options: OpenOptions,
    mapper: Mapper,
    read_here: Callable[[Source], _Outcome],
) -> Iterator[_Outcome]:
    """Yield what other processes read; tables come back as names of entries of the cache."""
    sent = [_can_be_sent(source) for source in sources]
    away = [source for source, is_sent in zip(sources, sent, strict=True) if is_sent]
    reader = partial(_outcome_elsewhere, replace(options, progress=Progress()))
    results = iter(mapper.map(reader, away))
    for source, is_sent in zip(sources, sent, strict=True):
        if not is_sent:
            yield read_here(source)
            continue
        outcome = next(results)
        options.progress.advance(source.size or 0)
        options.progress.done(source.name)
        if isinstance(outcome, Lost):
            yield TraceError(f"{source.name}: {outcome.why}")
        elif isinstance(outcome, list):
            yield [replace(recording, source=source) for recording in outcome]
        else:
            yield outcome


def _can_be_sent(source: Source) -> bool:
    """Return whether another process can open it: not what was spooled to a file without a name."""
    try:
        pickle.dumps(source)
    except (TypeError, AttributeError, pickle.PicklingError):
        return False
    return True


def _outcome_elsewhere(options: OpenOptions, source: Source) -> _Outcome:
    """Read a file in a process of the work."""
    store = _store_of_worker() if options.cache else None
    return _read_outcome(store, options, _readers_of_worker(), threading.Event(), source)


@cache
def _store_of_worker() -> Store:
    return Store()


@cache
def _readers_of_worker() -> ConfinedReaders:
    return ConfinedReaders(())


def _read_outcome(
    store: Store | None,
    options: OpenOptions,
    readers: ConfinedReaders,
    stopped: threading.Event,
    source: Source,
) -> _Outcome:
    """Return what each process of a file recorded, or what is wrong with the file."""
    try:
        return _read_one(source, store, options, readers, stopped)
    except TraceError as error:
        return error
    except HtkError:
        raise
    except Exception as error:
        return error


def _read_one(
    source: Source,
    store: Store | None,
    options: OpenOptions,
    readers: ConfinedReaders,
    stopped: threading.Event,
) -> list[FileRecording]:
    """Return each process of a file."""
    if options.cache_by_content:
        source = replace(source, identity=content_identity(source))
    parsing = parse_options(options, _watch_progress(options.progress, stopped))
    key = None if store is None else key_of(store, source, parsing)
    entries = None if store is None or key is None else store.find_all(key)
    if entries is None and store is not None and key is not None and key in store.unknown:
        raise UnknownFormat(f"{source.name}: not a trace that htk knows")
    if entries is None:
        try:
            entries = _read_entries(source, store, key, parsing, options.confined, readers)
        except UnknownFormat:
            if store is not None and key is not None:
                store.unknown.add(key)
            raise
    options.progress.done(source.name)
    return [
        FileRecording(source, entry.parsed.parser, entry, process_of(entry, k))
        for k, entry in enumerate(entries)
    ]


def _read_entries(
    source: Source,
    store: Store | None,
    key: str | None,
    options: ParseOptions,
    confined: bool,
    readers: ConfinedReaders,
) -> Sequence[Entry]:
    """Return what a file that the cache does not hold is found to hold, and keep it there."""
    if confined or is_from_outside(source):
        return readers.entries(source, options, store, key)
    from htk.parsers.common.safe_pickle import is_pickle  # not needed for what is in the cache

    start = read_beginning(source)
    if is_pickle(start.data):
        return readers.entries(source, options, store, key)
    parser = parser_of(start)
    if store is not None and key is not None:
        options = replace(options, keep=Spill(store.root))
        with columns_in_files(store.root):
            return store.save_all(key, parse_with(parser, source, options), source.name)
    parsed = parse_with(parser, source, options)
    return [MemoryEntry(process) for process in (parsed, *parsed.others)]


def parse_options(
    options: OpenOptions, progress: Callable[[int], None] | None = None
) -> ParseOptions:
    return ParseOptions(
        options.keep_unknown_arguments, options.keep_overruns, progress, options.time_unit
    )


def key_of(store: Store, source: Source, options: ParseOptions) -> str | None:
    """Return the name of a file's entry; None: it is not kept."""
    return None if source.identity is None else store.key(source, options, _plugin_codes())


def _list_expected(
    sources: list[Source], store: Store | None, options: OpenOptions
) -> list[Source]:
    """Return the files that a process of their own will be asked for, as far as a look shows."""

    def is_kept(source: Source) -> bool:
        key = None if store is None else key_of(store, source, parse_options(options))
        if store is None or key is None:
            return False
        return (store.root / key).is_dir() or key in store.unknown

    outside = [s for s in sources if options.confined or is_from_outside(s)]
    expected = [source for source in outside if not is_kept(source)]
    if options.confined:
        return expected
    nameless = [s for s in sources if s.path is not None and _may_be_pickle(s.file_name)]
    for source in nameless[:_LOOKED_AT]:  # in a folder of dumps all are dumps
        if is_kept(source):
            continue
        with suppress(TraceError), source.open() as file:
            if file.read(1) == b"\x80":
                return expected + nameless
    return expected


def _may_be_pickle(name: str) -> bool:
    """Return whether a file is called as pickles are: by their ending or none that is known."""
    return not name.endswith(_ENDINGS_OF_TEXT)


@cache
def _plugin_codes() -> tuple[str, ...]:
    """Return a hash of the code of each parser that another package adds, without importing it."""
    codes = []
    for entry in plugins.list_added("htk.parsers").values():
        try:
            spec = importlib.util.find_spec(entry.module)
        except (ImportError, ValueError):  # its package is damaged: it will be left out, too
            spec = None
        if spec is not None and spec.origin is not None:
            codes.append(plugin_code(spec.origin))
    return tuple(codes)


def _watch_progress(progress: Progress, stopped: threading.Event) -> Callable[[int], None]:
    """Tells how much further it is, and ends the reading when the user gave up."""
    last = 0

    def tell_progress(stored_bytes: int) -> None:
        nonlocal last
        if stopped.is_set():
            raise TraceError("stopped")
        progress.advance(stored_bytes - last)
        last = stored_bytes

    return tell_progress


def _explain_nothing(
    sources: list[Source], unread: list[str], failed: list[tuple[str, str]]
) -> TraceError:
    if failed:
        more = f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
        return MalformedTrace(failed[0][1] + more)
    if len(unread) == 1:
        advice = describe_foreign(read_beginning(sources[0])) if len(sources) == 1 else None
        advice = advice or "not a trace that htk knows; `htk formats` shows what it reads"
        return UnknownFormat(f"{unread[0]}: {advice}")
    names = ", ".join(s.name for s in sources[:3])
    return UnknownFormat(
        f"none of {len(sources)} files is a trace that htk knows ({names}, …); "
        "`htk formats` shows what it reads"
    )


def _assign_ranks(
    read: list[FileRecording], options: OpenOptions
) -> tuple[list[TraceFile], list[tuple[str, str]]]:
    """Return each file with its rank and cycle, once for a time, and why others have no rank."""
    files = with_ranks(read, options.rank, options.rank_pattern)
    groups: dict[tuple[str, int | None], list[tuple[FileRecording, str]]] = defaultdict(list)
    rankless: dict[str, str] = {}
    for item, rank, rank_from in choose_job(files, options.job):
        if (rank, rank_from) == UNKNOWN:
            rankless[item.source.name] = without_a_rank(item)
            continue
        key = (item.parser, rank) if rank is not None else (item.source.name, None)
        groups[key].append((item, rank_from))
    parts: list[TraceFile] = []
    for (_, rank), items in groups.items():
        parts += cycles_of(rank, items)
    parts = with_common_cycles(parts)
    parts.sort(key=lambda p: (p.rank is None, p.rank or 0, p.cycle, p.file))
    return parts, [*rankless.items()]
