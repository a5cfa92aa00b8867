"""The runs that a dashboard may show, and nothing else of the machine's files.

A run is named by a key that stands in the address: nothing for the run of the command line,
`sample`, `upload/TOKEN`, or a path that begins with the name of an allowed folder.
"""

import gc
import os
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from htk.answers.ask import ask_trace
from htk.answers.output.result import Result
from htk.base.errors import HtkError, UnknownRank, UsageError
from htk.base.io.sources import locate_within
from htk.dashboard.following import Followed, News
from htk.dashboard.memo import SingleFlightCache
from htk.dashboard.run_name import names_in_short
from htk.dashboard.uploads import Uploads
from htk.traces.trace.opening import SAMPLE, Inputs, OpenOptions, Progress, open_trace
from htk.traces.trace.selection import Selection
from htk.traces.trace.trace import Trace
from htk.verdicts.history.archive import History

MOST_OPEN = 4  # open traces; the least recently used is closed
MOST_LISTED = 500
UPLOAD_BYTES = 512 << 20
_DEPTH = 5
_FRESH_S = 30  # that runs added to the history may go unseen
_LIKE_TRACES = (".json", ".json.gz", ".json.zst", ".json.tmp", ".pickle", ".tar.gz", ".zip")
_UPLOAD = "upload"


class Cancelled(HtkError):
    """The reading was cancelled by whoever asked for it."""


class OpenJob(Progress):
    """A run being read in the background: how far it is, and whether it failed."""

    def __init__(self) -> None:
        self.files = self.ready = self.total = self.read = 0
        self.error = ""
        self.cancelled = False
        self.ended = threading.Event()

    def start(self, files: int, stored_bytes: int) -> None:
        self.files = files
        self.total = stored_bytes

    def advance(self, stored_bytes: int) -> None:
        if self.cancelled:
            raise Cancelled("the reading was cancelled")
        self.read += stored_bytes

    def done(self, file: str) -> None:
        self.ready += 1


@dataclass(frozen=True)
class ListedRun:
    """A run that could be opened."""

    key: str
    files: int
    stored_bytes: int
    changed: float  # seconds since 1970


class Runs:
    """Opens what is asked for within the allowed folders, and keeps the answers."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        *,
        trace: Trace | None = None,
        followed: Followed | None = None,  # the files of that trace, looked at before it was read
        options: OpenOptions | None = None,
        upload_bytes: int = UPLOAD_BYTES,
        history_address: str = "",  # of the facts of many runs; nothing: none are kept
        separate: Sequence[Path] = (),  # folders whose files are runs of their own
    ) -> None:
        self.roots = _name_folders(folders)
        self.upload_bytes = upload_bytes
        self.history_address = history_address
        self._histories: SingleFlightCache[History] = SingleFlightCache(2)
        self._options = replace(options or OpenOptions(), confined=True)
        self._open: OrderedDict[str, Trace] = OrderedDict()
        self._initial = trace
        self._separate = {folder.resolve() for folder in separate}
        self._followed: dict[str, Followed] = {"": followed} if followed is not None else {}
        self._jobs: dict[str, OpenJob] = {}
        self._lock = threading.Lock()
        self._one_at_a_time: defaultdict[str, threading.RLock] = defaultdict(threading.RLock)
        self._narrowed: SingleFlightCache[Trace] = SingleFlightCache(6)
        self._answers: SingleFlightCache[Any] = SingleFlightCache(160)
        self._drawn: SingleFlightCache[Any] = SingleFlightCache(400)  # some 50 kB each
        self._uploads = Uploads(upload_bytes)

    @property
    def has_initial(self) -> bool:
        """Whether a run was given on the command line, the only one without a key."""
        return self._initial is not None

    def trace(self, key: str) -> Trace | None:
        """Return a run that is open."""
        if not key:
            return self._initial
        with self._lock:
            if key in self._open:
                self._open.move_to_end(key)
            return self._open.get(key)

    def follow(self, key: str) -> News | None:
        """Return what is new of a run's files, which are read anew once they rest; nothing of a
        run that has no folder or file of its own."""
        trace = self.trace(key)
        if trace is None or key == "sample" or key.startswith(_UPLOAD):
            return None
        with self._lock:
            if key and key not in self._followed:
                self._followed[key] = Followed(self.path_of(key))
            followed = self._followed.get(key)
        return followed.look(lambda: self._read_anew(key, followed.inputs)) if followed else None

    def _read_anew(self, key: str, inputs: Inputs) -> str:
        """Put a new reading of a run into the place of the old; return what went wrong."""
        try:
            trace = open_trace(inputs, self._options_of(key))
        except HtkError as error:
            return str(error)
        with self._lock:
            if not key:
                self._initial = trace
            elif key in self._open:
                self._open[key] = trace
        self._let_go(key)
        gc.collect()
        return ""

    def narrowed(self, key: str, selection: Selection) -> Trace:
        """Return the same object for the same selection: its tables are made once."""
        trace = self.trace(key)
        if trace is None:
            raise UsageError(f"the run {key!r} is not open")
        if selection == trace.selection:
            return trace
        return self._narrowed.get((key, selection), lambda: trace.under(selection))

    def ask(self, key: str, selection: Selection, name: str, **options: object) -> Result:
        """Return an analysis of a run, computed once for all who ask."""
        trace = self.narrowed(key, selection)
        asked = (name, tuple(sorted(options.items())))
        result: Result = self.kept(key, selection, asked, lambda: ask_trace(trace, name, **options))
        return result

    def history(self) -> History:
        """Return the history with its runs, as it was half a minute ago at most."""

        def read_history() -> History:
            history = History(self.history_address)
            _ = history.runs
            return history

        return self._histories.get(int(time.monotonic() // _FRESH_S), read_history)

    def kept(self, key: str, selection: Selection, what: object, make: Callable[[], Any]) -> Any:
        """Return anything else that is made of a run; it is made once.

        Things are made one after the other for each run: the parts of a page want the same tables,
        and side by side each would make them anew.
        """
        asked = (key, selection, what)
        if self._answers.is_ready(asked):
            return self._answers.get(asked, make)
        with self._one_at_a_time[key]:
            return self._answers.get(asked, make)

    def computed(
        self, key: str, selection: Selection, what: object, make: Callable[[], Any]
    ) -> Any:
        """Return what another process makes of a run, once, in parallel with other answers."""
        return self._answers.get((key, selection, what), make)

    def drawn(self, key: str, what: object, make: Callable[[], Any]) -> Any:
        """Return a finished part of a page: figures take longer to build than to send."""
        return self._drawn.get((key, what), make)

    def drawn_before(self, key: str, what: object) -> Any:
        """Return a finished part of a page that somebody has seen, or nothing."""
        return self._drawn.found((key, what))

    def begin(self, key: str) -> OpenJob:
        """Start to read a run, or find the reading that is under way."""
        path = self.path_of(key)
        with self._lock:
            job = self._jobs.get(key)
            if job is None or (job.ended.is_set() and key not in self._open):
                job = self._jobs[key] = OpenJob()
                threading.Thread(target=self._read, args=(key, path, job), daemon=True).start()
        return job

    def job(self, key: str) -> OpenJob | None:
        return self._jobs.get(key)

    def cancel(self, key: str) -> None:
        job = self._jobs.get(key)
        if job is not None:
            job.cancelled = True

    def forget(self, key: str) -> None:
        """Forget a reading that failed, so that it may be tried again."""
        self._jobs.pop(key, None)

    def _read(self, key: str, path: Inputs, job: OpenJob) -> None:
        try:
            options = replace(self._options_of(key), progress=job)
            trace = open_trace(path, options)
            with self._lock:
                self._open[key] = trace
                gone = [self._open.popitem(last=False)[0]] if len(self._open) > MOST_OPEN else []
            for old in gone:
                self._let_go(old)
            if gone:
                gc.collect()  # traces refer to themselves, and are too few objects to be seen
        except HtkError as error:
            if isinstance(error, UnknownRank) and isinstance(path, Path) and path.is_dir():
                self._separate.add(path.resolve())  # listed file by file from now on
            # Where the server keeps an upload is nobody's business.
            job.error = _without_place(str(error), path)
        except MemoryError:
            job.error = "not enough memory to read it; open fewer ranks"
        except Exception as error:  # a thread has no one else to tell
            job.error = f"reading failed: {type(error).__name__}: {error}"
        finally:
            job.ended.set()

    def _let_go(self, key: str) -> None:
        kept: tuple[SingleFlightCache[Any], ...] = (self._narrowed, self._answers, self._drawn)
        for each in kept:
            each.forget(lambda k: isinstance(k, tuple) and k[0] == key)

    def _options_of(self, key: str) -> OpenOptions:
        """Return how a run is opened: one that was chosen on a page, below the allowed folders."""
        if not key or key == "sample":
            return self._options
        if key.startswith(_UPLOAD):
            below = tuple(filter(None, [self._uploads.folder]))
            return replace(self._options, cache=False, within=below)
        return replace(self._options, within=tuple(self.roots.values()))

    def path_of(self, key: str) -> Inputs:
        """Return where a run lies; refused outside the allowed folders, links followed first.
        Files below it that lead out are refused when they are opened."""
        if key == "sample":
            return SAMPLE
        name, _, rest = key.partition("/")
        root = self._uploads.folder if name == _UPLOAD else self.roots.get(name)
        if root is None:
            raise UsageError(f"{key[:80]!r} lies in no folder that this dashboard may read")
        path = locate_within(root / rest, [root])
        if path is not None and (name != _UPLOAD or path != root.resolve()):
            return path
        if name == _UPLOAD:
            raise UsageError("this upload is not kept any more: upload it again")
        raise UsageError(
            f"{key[:80]!r} is gone, or leads out of the folders that this dashboard may read"
        )

    def key_of(self, text: str) -> str:
        """Return the key of a path that a person typed: absolute, or from an allowed folder."""
        typed = _expand_path(text)
        for name, root in self.roots.items():
            path = locate_within(root / typed, [root])  # an absolute one stays as it is
            if path is not None:
                return "/".join([name, *path.relative_to(root.resolve()).parts])
        allowed = ", ".join(map(str, self.roots.values())) or "none"
        raise UsageError(
            f"{text[:80]!r} is not in the folders that this dashboard may read: {allowed}"
        )

    def listed(self) -> list[ListedRun]:
        """Return the folders that hold files like traces, newest first; of a folder whose files
        are of different recordings each file."""
        runs: list[ListedRun] = []
        for name, root in self.roots.items():
            for folder, files in _list_folders(root.resolve()):
                apart = folder in self._separate
                for path, members in [(f, [f]) for f in files] if apart else [(folder, files)]:
                    facts = [f.stat() for f in members]
                    key = "/".join([name, *path.relative_to(root.resolve()).parts])
                    stored = sum(f.st_size for f in facts)
                    changed = max(f.st_mtime for f in facts)
                    runs.append(ListedRun(key, len(members), stored, changed))
                if len(runs) >= MOST_LISTED:
                    break
        return sorted(runs[:MOST_LISTED], key=lambda r: -r.changed)

    def upload(self, name: str, body: IO[bytes], key: str = "") -> str:
        """Keep a file under a key that nobody else can guess, or with the others of a key that was
        given before; refuse what is too large."""
        token = key.removeprefix(f"{_UPLOAD}/")
        if key and (token in ("", key) or key in self._jobs):  # its files are being read
            raise UsageError("there is no upload that this file could belong to")
        return f"{_UPLOAD}/{self._uploads.keep(name, body, token)}"

    def title_of(self, key: str) -> str:
        """Return how a run that is not open is called: by its key, an upload by its files."""
        if not key.startswith(f"{_UPLOAD}/"):
            return key
        names = self._uploads.names(key.removeprefix(f"{_UPLOAD}/"))
        return names_in_short(names) or _UPLOAD

    def close(self) -> None:
        """Delete the uploaded files, which are kept no longer than the server runs."""
        self._uploads.close()


def _without_place(text: str, path: Inputs) -> str:
    """Return a message that names files as the user knows them: no folder of the server."""
    names = [str(path)] if isinstance(path, str | Path) else [str(p) for p in path]
    for name in names:
        own = Path(name)
        files = [file.name for file in own.iterdir()] if own.is_dir() else [own.name]
        text = text.replace(f"{name}{os.sep}", "")
        text = text.replace(name, files[0] if len(files) == 1 else own.name)
    return text


def _expand_path(text: str) -> Path:
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:  # ~somebody without a home
        return Path(text.strip())


def _name_folders(folders: Sequence[Path]) -> dict[str, Path]:
    """Return each folder under its own name; a second one of a name gets a number."""
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name or "root"
        while name in named or name in (_UPLOAD, "sample"):
            name += "+"
        named[name] = folder
    return named


def _list_folders(root: Path) -> Iterator[tuple[Path, list[Path]]]:
    """Yield folders of a few levels that hold files named like traces; links are not followed."""
    for directory, folders, files in os.walk(root):
        folder = Path(directory)
        depth = len(folder.relative_to(root).parts)
        folders[:] = sorted(f for f in folders if not f.startswith((".", "_")) and depth < _DEPTH)
        like = [folder / f for f in files if f.endswith(_LIKE_TRACES) or "trace_rank_" in f]
        like = [f for f in like if not f.is_symlink() and not f.name.startswith(".")]
        if like:
            yield folder, like


def holds_runs(folder: Path) -> bool:
    """Return whether it is a folder of runs: no trace in it itself, but in several below it."""
    root = folder.resolve()
    folders = [path for path, _ in _list_folders(root)]
    return len(folders) > 1 and root not in folders
