"""Processes of this machine, each with an interpreter of its own."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from htk.base.spread.mapper import TRIES, Answer, Item, Lost


@contextmanager
def _not_interrupted() -> Iterator[None]:
    """Start processes to which an interrupt comes once they know what to do with it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_without_a_word() -> None:
    """Let an interrupt, which a terminal sends to all processes, end this one at once: the first
    process says that it stopped, and an exception would be printed where it meets an import. What
    is left on disk is removed by the next who writes there."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


class ProcessMapper:
    """A pool that is made anew when one of its processes is lost."""

    shares_memory = False

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None

    def map(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[Answer | Lost]:
        begun: dict[int, Future[Any]] = {}
        tries = [0] * len(items)
        alone = -1  # who may have ended a process is tried by itself, so that it takes no others
        for current in range(len(items)):
            while True:
                last = current + 1 if alone >= current else current + 2 * self.workers
                try:  # a pool that is broken may say so to either, as it finds out
                    for k in range(current, min(last, len(items))):
                        if k not in begun:
                            begun[k] = self._submit_item(function, items[k])
                    answer = begun.pop(current).result()
                except BrokenProcessPool:
                    self.close()
                    alone = max(begun, default=current)
                    begun.clear()
                    tries[current] += 1
                    if tries[current] >= TRIES:
                        yield Lost(f"{TRIES} processes that worked on it were killed")
                        break
                else:
                    yield answer
                    break

    def _submit_item(self, function: Callable[[Item], Answer], item: Item) -> Future[Answer]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # threads do not survive a fork
            self._pool = ProcessPoolExecutor(
                self.workers, mp_context=context, initializer=_end_without_a_word
            )
        with _not_interrupted():  # a process starts with each of the first items
            return self._pool.submit(function, item)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
