"""One row for each operation of a worker, in every step, for as long as the job runs.

    with htk.capture("rows/", operations=True) as log:
        log.watch(model, optimizer)          # a plain loop: hooks log what it does
        for batch in data:
            train(batch)
            log.step()

    timers = log.timers(timers)              # Megatron: its timers log as they run
    with log.operation("forward_compute", micro_batch=3):  # anything else, by hand
        ...

JSON lines in files that rotate, operations-rank00003.7.jsonl, written once a second: a job that is
killed has lost a second. On a GPU start and end are CUDA events; nothing waits for the device. What
goes wrong here never stops the training: logging ends with a warning.
"""

import json
import re
import sys
import time
import warnings
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from htk.base.schema.environment_facts import ENVIRONMENT_KEY
from htk.base.schema.operation_types import operation_type
from htk.recording.clocks import Clock
from htk.recording.environment import recorded_environment

_FLUSH_NS = 1_000_000_000
_MOST_PENDING = 200_000  # rows in memory: those of a device that never comes back are dropped
_NUMBER = re.compile(r"\.(\d+)\.jsonl$")


@dataclass(frozen=True)
class Worker:
    """Who logs: a rank, and its place in the job."""

    rank: int = 0
    dp_rank: int = 0
    stage: int = 0
    tp_rank: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # dp_size, pp_size, vpp_size, world_size …


def megatron_worker(rank: int, world_size: int) -> Worker:
    """Return the worker that Megatron's groups tell, where they exist; else one replica of many."""
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None or not state.model_parallel_is_initialized():
        return Worker(rank, dp_rank=rank, sizes={"dp_size": world_size, "pp_size": 1})
    return Worker(
        rank,
        state.get_data_parallel_rank(),
        state.get_pipeline_model_parallel_rank(),
        state.get_tensor_model_parallel_rank(),
        {
            "dp_size": state.get_data_parallel_world_size(),
            "pp_size": state.get_pipeline_model_parallel_world_size(),
            "tp_size": state.get_tensor_model_parallel_world_size(),
            "vpp_size": state.get_virtual_pipeline_model_parallel_world_size() or 1,
            "world_size": world_size,
        },
    )


class Operation:
    """An operation that runs: logged when its block ends."""

    __slots__ = ("_began", "_chunk", "_log", "_micro_batch", "_type")

    def __init__(
        self, log: "OperationLog", type_: str, micro_batch: int | None, chunk: int | None
    ) -> None:
        self._log = log
        self._type = type_
        self._micro_batch = micro_batch
        self._chunk = chunk

    def __enter__(self) -> None:
        self._began = self._log.clock.mark()

    def __exit__(self, *_: object) -> None:
        self._log.add(
            self._type, self._began, self._log.clock.mark(), self._micro_batch, self._chunk
        )


class OperationLog:
    """The rows of one worker. `step()` belongs at the end of each iteration."""

    def __init__(
        self,
        folder: Path,
        worker: Worker,
        clock: Clock,
        *,
        rotate_mib: int = 64,
        keep: int = 16,
        first_step: int = 0,
    ) -> None:
        self.folder = folder
        self.worker = worker
        self.clock = clock
        self.steps = first_step
        self.recorded = worker.tp_rank == 0  # ranks that share each layer run in step
        self.paths: list[Path] = []
        self.dropped = 0
        self._rotate_bytes = rotate_mib << 20
        self._keep = keep
        self._pending: deque[tuple[Any, ...]] = deque()
        self._flushed = time.perf_counter_ns()
        self._file: BinaryIO | None = None
        self._heads: dict[str, str] = {}
        if self.recorded:
            folder.mkdir(parents=True, exist_ok=True)
            self._number = self._next_number()
            if worker.rank == 0 and worker.sizes:
                self._write_layout()

    def operation(
        self, type_: str, *, micro_batch: int | None = None, chunk: int | None = None
    ) -> Operation:
        """Log what the block does: `with log.operation("forward_compute", micro_batch=3):`."""
        return Operation(self, type_, micro_batch, chunk)

    def add(
        self, type_: str, began: Any, ended: Any, micro_batch: int | None, chunk: int | None
    ) -> None:
        """Log an operation between two marks of `clock`."""
        if self.recorded:
            self._pending.append((type_, began, ended, micro_batch, chunk, self.steps))

    def step(self) -> None:
        """Tell that an iteration is over."""
        self.steps += 1
        if not self.recorded:
            return
        self.clock.new_step()
        if time.perf_counter_ns() - self._flushed >= _FLUSH_NS:
            self.flush()

    def flush(self) -> None:
        """Write what is known."""
        self._flushed = time.perf_counter_ns()
        try:
            lines = "".join(self._list_lines())
            if lines:
                self._write(lines.encode())
        except Exception as error:  # whatever it is, training goes on
            self.recorded = False
            self._pending.clear()
            warnings.warn(f"operations are no longer logged: {error}", stacklevel=2)

    def close(self) -> None:
        """Write the rest and close the file."""
        if self.recorded:
            deadline = time.monotonic() + 5
            self.flush()
            while self._pending and self.recorded and time.monotonic() < deadline:
                self.clock.new_step()  # the device is about to finish
                self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes of the job's parallelism, by Megatron's names."""
        return self.worker.sizes

    def watch(self, model: Any, optimizer: Any = None) -> None:
        """Log forwards, backwards, exposed reductions (of DDP) and steps of a plain loop."""
        from htk.recording.hooks import watch_training_loop

        if self.recorded:
            watch_training_loop(self, model, optimizer)

    def timers(self, timers: Any) -> Any:
        """Megatron's timers, which then log as they run; use them in place of the others."""
        from htk.recording.hooks import LoggingTimers

        return LoggingTimers(timers, self) if self.recorded else timers

    def _list_lines(self) -> list[str]:
        pending = self._pending
        when = self.clock.when
        lines = []
        while pending:  # a few hundred rows a step: about a microsecond each
            type_, began, ended, micro_batch, chunk, step = pending[0]
            start = when(began)
            end = when(ended)
            if start is None or end is None:
                break
            pending.popleft()
            head = self._heads.get(type_) or self._build_head(type_)
            batch = "null" if micro_batch is None else micro_batch
            of_chunk = "null" if chunk is None else chunk
            lines.append(
                f'{head}"chunk":{of_chunk},"micro_batch":{batch},"step":{step},'
                f'"start_ns":{start},"end_ns":{end}}}\n'
            )
        while len(pending) > _MOST_PENDING:
            pending.popleft()
            self.dropped += 1
        return lines

    def _build_head(self, type_: str) -> str:
        worker = self.worker
        self._heads[type_] = (
            f'{{"rank":{worker.rank},"dp_rank":{worker.dp_rank},"stage":{worker.stage},'
            f'"type":{json.dumps(operation_type(type_))},'
        )
        return self._heads[type_]

    def _write(self, data: bytes) -> None:
        if self._file is None or self._file.tell() >= self._rotate_bytes:
            self._rotate_file()
        assert self._file is not None
        self._file.write(data)
        self._file.flush()

    def _rotate_file(self) -> None:
        if self._file is not None:
            self._file.close()
        path = self.folder / f"operations-rank{self.worker.rank:05d}.{self._number}.jsonl"
        self._file = path.open("ab")
        self._number += 1
        self.paths.append(path)
        if self._keep:
            for old in self.paths[: -self._keep]:
                old.unlink(missing_ok=True)
            del self.paths[: -self._keep]

    def _next_number(self) -> int:
        """Behind the files of an earlier start of the job."""
        names = self.folder.glob(f"operations-rank{self.worker.rank:05d}.*.jsonl")
        numbers = [int(m[1]) for m in map(_NUMBER.search, map(str, names)) if m]
        return max(numbers, default=-1) + 1

    def _write_layout(self) -> None:
        text = "".join(f"{name}: {size}\n" for name, size in self.worker.sizes.items())
        facts = recorded_environment()
        text += f"{ENVIRONMENT_KEY}: {json.dumps(facts)}\n" if facts else ""
        with suppress(OSError):
            (self.folder / "layout.yaml").write_text(text)
