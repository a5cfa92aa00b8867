"""Hooks that log operations: on modules and optimizers of a plain loop, on Megatron's timers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from htk.base.core.extras import require_extra
from htk.base.schema.operation_types import ROW_TYPES, operation_type
from htk.recording.clocks import Clock


class Log(Protocol):
    """What hooks need of a log of operations."""

    @property
    def clock(self) -> Clock: ...

    @property
    def steps(self) -> int: ...

    @property
    def sizes(self) -> Mapping[str, int]:
        """Return the sizes of the job's parallelism, by Megatron's names."""
        ...

    def add(
        self, type_: str, began: Any, ended: Any, micro_batch: int | None, chunk: int | None
    ) -> None:
        """Log an operation between two marks of the clock."""
        ...


def watch_training_loop(log: Log, model: Any, optimizer: Any) -> None:
    """Log what a plain loop does, from hooks that torch calls anyway."""
    passes = _Passes(log, model)
    model.register_forward_pre_hook(passes.forward_begins)
    model.register_forward_hook(passes.forward_ends)
    if optimizer is not None:
        optimizer.register_step_pre_hook(passes.optimizer_begins)
        optimizer.register_step_post_hook(passes.optimizer_ends)


class _Passes:
    """Forwards and backwards of one model, numbered by micro-batch."""

    def __init__(self, log: Log, model: Any) -> None:
        require_extra("torch", "a recording")
        import torch

        self._log = log
        self._model = model
        self._torch = torch
        self._step = -1
        self._batch = -1
        self._began: Any = None

    def forward_begins(self, *_: Any) -> None:
        if not self._torch.is_grad_enabled():  # an evaluation is no part of a step
            return
        if self._step != self._log.steps:
            self._step = self._log.steps
            self._batch = -1
        self._batch += 1
        self._began = self._log.clock.mark()

    def forward_ends(self, module: Any, inputs: Any, output: Any) -> None:
        if self._began is None:
            return
        log = self._log
        batch = self._batch
        log.add("forward_compute", self._began, log.clock.mark(), batch, None)
        self._began = None
        first = next((t for t in _list_tensors(output) if t.requires_grad), None)
        if first is not None:
            first.register_hook(lambda _: self._backward_begins(batch))

    def _backward_begins(self, batch: int) -> None:
        """Log the backward when the engine is through with it.

        DDP waits for its reductions in a callback of the engine too, which it queues later. One
        that is queued from the end of the backward comes after that: between them the reductions
        were exposed.
        """
        log = self._log
        queue = self._torch.autograd.Variable._execution_engine.queue_callback
        began = log.clock.mark()

        def end_backward() -> None:
            end = log.clock.mark()
            log.add("backward_compute", began, end, batch, None)
            if getattr(self._model, "require_backward_grad_sync", False):
                queue(lambda: log.add("grads_all_reduce", end, log.clock.mark(), None, None))

        queue(end_backward)

    def optimizer_begins(self, *_: Any) -> None:
        self._began = self._log.clock.mark()

    def optimizer_ends(self, *_: Any) -> None:
        self._log.add("optimizer", self._began, self._log.clock.mark(), None, None)
        self._began = None


def _list_tensors(output: Any) -> Iterator[Any]:
    """Tensors of a module's output, whatever holds them."""
    if hasattr(output, "requires_grad"):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from _list_tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _list_tensors(value)


class LoggingTimers:
    """Megatron's timers; those of operations log what they time."""

    def __init__(self, timers: Any, log: Log) -> None:
        self._timers = timers
        self._log = log
        self._wrapped: dict[str, _Timer] = {}
        self.count: Counter[str] = Counter()
        self.step = -1

    def __call__(self, name: str, *args: Any, **options: Any) -> Any:
        timer = self._timers(name, *args, **options)
        type_ = operation_type(name)
        if type_ not in ROW_TYPES:
            return timer
        if name not in self._wrapped:
            self._wrapped[name] = _Timer(self, self._log, type_)
        self._wrapped[name].timer = timer
        return self._wrapped[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._timers, name)


class _Timer:
    """One timer; micro-batch and chunk are those of the schedule, by how often it has run."""

    def __init__(self, timers: LoggingTimers, log: Log, type_: str) -> None:
        self.timer: Any = None
        self._timers = timers
        self._log = log
        self._type = type_
        self._began: Any = None

    def start(self, *args: Any, **options: Any) -> None:
        self.timer.start(*args, **options)
        self._began = self._log.clock.mark()

    def stop(self, *args: Any, **options: Any) -> None:
        if self._began is not None:
            batch, chunk = self._place()
            self._log.add(self._type, self._began, self._log.clock.mark(), batch, chunk)
            self._began = None
        self.timer.stop(*args, **options)

    def _place(self) -> tuple[int | None, int | None]:
        timers = self._timers
        log = self._log
        if timers.step != log.steps:
            timers.step = log.steps
            timers.count.clear()
        nth = timers.count[self._type]
        timers.count[self._type] += 1
        if not self._type.endswith("_compute"):
            return None, None
        stages = log.sizes.get("pp_size", 1)
        chunks = log.sizes.get("vpp_size", 1)
        group, within = divmod(nth, stages * chunks)
        chunk, batch = divmod(within, stages)
        forward = self._type.startswith("forward")
        return group * stages + batch, chunk if forward else chunks - 1 - chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self.timer, name)
