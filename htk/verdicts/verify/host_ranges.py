"""Which user ranges hold what a thread launches, range by range."""

from collections import Counter
from collections.abc import Sequence

from htk.base.columns.types import NONE
from htk.base.names.phases import is_gradient
from htk.verdicts.verify.reading import Span
from htk.verdicts.verify.spans import Nesting

_Thread = tuple[str | None, str | None]


class HostRanges:
    """The user ranges of threads, steps of the profiler aside.

    A range holds what its thread launches while it is open, and what threads of autograd launch
    for the main thread.
    """

    def __init__(self, annotations: Sequence[Span], operators: Sequence[Span]) -> None:
        on_host = [span for span in annotations if not span.on_gpu]
        self._nested = Nesting([span for span in on_host if span.step is None])
        self._autograd = {
            span.thread
            for span in operators
            if is_gradient(span.name) or (span.number("Fwd thread id") or 0) > 0
        }
        self._main = self._main_thread([span for span in on_host if span.step is not None])

    def holding(self, thread: _Thread, time: int) -> list[Span]:
        """Return the ranges that hold what a thread launches at a time."""
        chain = self._list_chain(thread, time)
        if thread != self._main and thread in self._autograd:
            # A range of the autograd thread lies in what the main thread had open as it began.
            chain += self._list_chain(self._main, chain[-1].start if chain else time)
        return [span for span in chain if span.end > time]

    def _list_chain(self, thread: _Thread | None, time: int) -> list[Span]:
        row = NONE if thread is None else self._nested.around(thread, time)
        chain = []
        while row != NONE:
            chain.append(self._nested.spans[row])
            row = self._nested.parent[row]
        return chain

    def _main_thread(self, steps: Sequence[Span]) -> _Thread | None:
        """Return the thread that steps, else the one with most time in ranges, best not
        autograd's."""
        if steps:
            return Counter(span.thread for span in steps).most_common(1)[0][0]
        ranges = zip(self._nested.spans, self._nested.parent, strict=True)
        outer = [span for span, parent in ranges if parent == NONE]
        own = [span for span in outer if span.thread not in self._autograd]
        times: Counter[_Thread] = Counter()
        for span in own or outer:
            times[span.thread] += span.length + 1
        return times.most_common(1)[0][0] if times else None
