"""A Ray cluster: the one at RAY_ADDRESS, else one of this machine for as long as the work lasts."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from htk.base.core.extras import require_extra
from htk.base.errors import AnalysisError
from htk.base.mappings import Fields
from htk.base.spread.mapper import TRIES, Answer, Item, Lost, in_order

_LOCAL_STORE_BYTES = 256 << 20  # results are tables of answers, and keys
_ITEMS_PER_TASK = 8  # at most: a task passes through four processes, whatever it does
_TASKS_PER_WORKER = 4  # at least, so that none waits long for the last


class RayMapper:
    """Tasks on a cluster; one whose worker is lost is tried again elsewhere."""

    shares_memory = False

    def __init__(self, workers: int | None = None) -> None:
        require_extra("ray", "--on ray")
        import ray

        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            try:
                ray.init(**_describe_cluster(workers))
            except Exception as error:  # of many kinds, and of none in particular
                raise AnalysisError(
                    f"no Ray cluster could be reached or started: {error}; RAY_ADDRESS names "
                    "one that runs, --on processes needs none"
                ) from error
        self.workers = workers or max(int(self._ray.cluster_resources().get("CPU", 1)), 1)

    def map(
        self, function: Callable[[Item], Answer], items: Sequence[Item]
    ) -> Iterator[Answer | Lost]:
        ray = self._ray
        together = ray.remote(num_cpus=1, max_retries=0)(results_of)
        alone = ray.remote(num_cpus=1, max_retries=TRIES - 2)(results_of)
        shared = ray.put(function)
        size = _items_per_task(len(items), self.workers)

        def start_chunk(chunk: Sequence[Item]) -> Callable[[], list[Answer | Lost]]:
            return partial(finish_chunk, chunk, together.remote(shared, chunk))

        def finish_chunk(chunk: Sequence[Item], reference: Any) -> list[Answer | Lost]:
            results = self._read_results(reference)
            if isinstance(results, list):
                return results
            tries = [alone.remote(shared, [item]) for item in chunk]  # any of them may be why
            return [answer for item in tries for answer in _list_results(self._read_results(item))]

        chunks = [items[k : k + size] for k in range(0, len(items), size)]
        # After an error the few tasks under way end by themselves, or with this process: Ray aborts
        # the process that cancels a task which completes at that moment.
        for results in in_order(start_chunk, chunks, self.workers):
            yield from results

    def _read_results(self, reference: Any) -> Any:
        """Return the list that a task returns, or why there is none."""
        ray = self._ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None
        except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
            return Lost(f"{TRIES} workers that worked on it were lost")
        except ray.exceptions.OutOfMemoryError:
            return Lost("its worker ran out of memory")

    def close(self) -> None:
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()


def results_of(function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """Apply a function that was sent once to the items of a task."""
    return [function(item) for item in items]


def _items_per_task(items: int, workers: int) -> int:
    return max(1, min(_ITEMS_PER_TASK, items // (workers * _TASKS_PER_WORKER)))


def _list_results(results: list[Answer] | Lost) -> list[Answer | Lost]:
    return [results] if isinstance(results, Lost) else [*results]


def _describe_cluster(workers: int | None) -> Fields:
    """Return how to reach a cluster, or how to start one here."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        settings = {name: value for name, value in os.environ.items() if name.startswith("HTK_")}
        return {
            "address": address,
            "log_to_driver": False,
            "runtime_env": {"env_vars": settings},
        }
    return {
        "num_cpus": workers or os.cpu_count() or 1,
        "include_dashboard": False,
        "object_store_memory": _LOCAL_STORE_BYTES,
        "configure_logging": False,
        "log_to_driver": False,
    }
