"""Answers kept for who asks again: a bounded number, each computed once however many ask."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

V = TypeVar("V")


class SingleFlightCache(Generic[V]):
    """The last `most` values; who asks while a value is being made waits for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Future[V]] = OrderedDict()

    def is_ready(self, key: Hashable) -> bool:
        """Return whether the value is there, so that `get` answers at once."""
        with self._lock:
            value = self._values.get(key)
            return value is not None and value.done()

    def found(self, key: Hashable) -> V | None:
        """Return the value where it is there; nothing is made."""
        with self._lock:
            value = self._values.get(key)
            if value is None or not value.done():
                return None
            self._values.move_to_end(key)
        return value.result()

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        pending: Future[V] = Future()
        with self._lock:
            cached = self._values.get(key)
            if cached is None:
                self._values[key] = pending
                while len(self._values) > self._most:
                    self._values.popitem(last=False)
            else:
                self._values.move_to_end(key)
        if cached is not None:
            return cached.result()
        try:
            pending.set_result(make())
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            pending.set_exception(error)
            raise
        return pending.result()

    def forget(self, wanted: Callable[[Hashable], bool]) -> None:
        """Drops the values whose keys are not wanted any more."""
        with self._lock:
            for key in [k for k in self._values if wanted(k)]:
                del self._values[key]
