"""The traces that an agent may read: those below the folders it was given, a few kept open."""

import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from htk.base.core.humanize import parse_int_ranges
from htk.base.errors import UsageError
from htk.base.io.sources import locate_within, resolve_inputs
from htk.traces.trace.opening import SAMPLE, OpenOptions, open_trace
from htk.traces.trace.trace import Trace

_MOST_OPEN = 4
_Identities = tuple[str | None, ...]  # what tells its files from those of a later recording


class Traces:
    """Recordings by path. A path outside the roots, also by a link or `..`, is refused."""

    def __init__(self, roots: Sequence[Path], options: OpenOptions | None = None) -> None:
        self.roots = tuple(root.resolve() for root in roots)
        self._options = options or OpenOptions()
        self._open: OrderedDict[tuple[str, str | None, _Identities], Trace] = OrderedDict()
        self._turn = threading.Lock()  # requests come from several threads

    def select(
        self,
        path: str,
        ranks: str | None = None,
        steps: str | None = None,
        cycles: str | None = None,
        job: str | None = None,
    ) -> Trace:
        """Return a recording, narrowed to ranks, steps and cycles such as "0..3,8"."""
        opened = self._open_trace(path, job)
        if ranks is None and steps is None and cycles is None:
            return opened  # what is derived of it is derived once for all questions
        chosen = opened.sel(
            ranks=None if ranks is None else parse_int_ranges(ranks),
            steps=steps,
            cycles=None if cycles is None else parse_int_ranges(cycles),
        )
        chosen.check_selection()
        return chosen

    def _open_trace(self, path: str, job: str | None) -> Trace:
        inside = SAMPLE if path == "sample" else self.inside(path)
        within = () if path == "sample" else self.roots
        options = replace(self._options, job=job, within=within, confined=True)
        files = tuple(source.identity for source in resolve_inputs(inside, options.within))
        key = str(inside), job, files
        with self._turn:
            trace = self._open.get(key)
        if trace is None:
            trace = open_trace(inside, options)
        with self._turn:
            trace = self._open.setdefault(key, trace)  # another thread may have opened it meanwhile
            self._open.move_to_end(key)
            dropped = [self._open.popitem(last=False) for _ in range(len(self._open) - _MOST_OPEN)]
        if dropped:
            del dropped
            gc.collect()  # traces refer to themselves, and are too few objects to be seen
        return trace

    def inside(self, path: str) -> Path:
        """Return the real path of what was named, below one of the roots."""
        named = Path(path)
        candidates = [named] if named.is_absolute() else [root / named for root in self.roots]
        for candidate in candidates:
            real = locate_within(candidate, self.roots)
            if real is not None:
                return real
        roots = ", ".join(map(str, self.roots))
        raise UsageError(f"{path[:80]}: no such file or folder below {roots}, or 'sample'")

    def listed(self, most: int) -> list[str]:
        """Return the first files and folders below the roots, as `select` takes them."""
        names: list[str] = []
        for root in self.roots:
            for folder, folders, files in os.walk(root):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                names += [os.path.join(folder, name) for name in sorted(files)]
                if len(names) >= most:
                    return names[:most]
        return names
