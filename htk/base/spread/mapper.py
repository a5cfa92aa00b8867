"""Map a function over items, wherever it runs.

Nothing outside this package knows whether threads, processes or a cluster do the work.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar

from htk.base.errors import AnalysisError

Item = TypeVar("Item")
Answer = TypeVar("Answer")
On = Literal["threads", "processes", "ray"]
ON: tuple[On, ...] = ("threads", "processes", "ray")
TRIES = 3  # workers that one item may take with it


@dataclass(frozen=True)
class Lost:
    """Stands for a result where every worker that tried was lost."""

    why: str


class Mapper(Protocol):
    """Applies functions to items."""

    @property
    def workers(self) -> int:
        """Return how many items are worked on at a time."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether functions run in this process, so that items and results are not copied."""
        ...

    def map(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[Answer | Lost]:
        """Yield the result of each item, in their order; an error of the function is raised."""
        ...

    def close(self) -> None:
        """Leave nothing running."""
        ...


def every_result(
    mapper: Mapper, function: Callable[[Item], Answer], items: Sequence[Item], missing: str
) -> Iterator[Answer]:
    """Yield the result of each item, in their order, where nothing can be said without one;
    `missing`: what is not there then."""
    for result in mapper.map(function, items):
        if isinstance(result, Lost):
            raise AnalysisError(f"{missing}: {result.why}")
        yield result


class ThreadMapper:
    """Threads of this process: compiled code gives up the lock of the interpreter."""

    shares_memory = True

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1

    def map(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[Answer | Lost]:
        if self.workers == 1 or len(items) < 2:
            yield from map(function, items)
            return
        from concurrent.futures import ThreadPoolExecutor  # imports logging; one file needs none

        pool = ThreadPoolExecutor(min(self.workers, len(items)))
        try:
            yield from in_order(
                lambda item: pool.submit(function, item).result, items, self.workers
            )
        finally:  # what was begun ends by itself
            pool.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        return


def in_order(
    start: Callable[[Item], Callable[[], Answer]], items: Iterable[Item], workers: int
) -> Iterator[Answer]:
    """Yield results in the order of items, with no more begun than keeps the workers busy: what is
    finished and not yet taken is held in memory."""
    waiting = iter(items)
    begun: list[Any] = [start(item) for item in islice(waiting, 2 * workers)]
    while begun:
        result = begun.pop(0)()
        begun += [start(item) for item in islice(waiting, 1)]
        yield result
