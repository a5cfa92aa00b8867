"""Recording as the analyses like it: a context manager round torch.profiler.

    with htk.capture("traces/") as recording:
        for batch in data:
            train(batch)
            recording.step()

torch is imported when a recording begins, never before.
"""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, overload

from htk.base.core.extras import require_extra
from htk.base.errors import UsageError
from htk.recording.clocks import Clock, DeviceClock, HostClock
from htk.recording.environment import environment_recorded
from htk.recording.operations import OperationLog, Worker, megatron_worker
from htk.recording.recording import Recording
from htk.recording.triggers import TriggeredRecording, listen_for_signal, triggers_of

# What NCCL and its watchdog read when a process group is made; FR: PyTorch 2.6 and later.
FLIGHT_RECORDER = {
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
_DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_NCCL_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,TUNING"}


@overload
def capture(
    folder: str | Path,
    *,
    operations: Literal[True],
    rotate_mib: int = 64,
    keep: int = 16,
    first_step: int = 0,
    worker: Worker | None = None,
) -> AbstractContextManager[OperationLog]: ...


@overload
def capture(
    folder: str | Path,
    *,
    operations: Literal[False] = False,
    wait: int = 1,
    warmup: int = 2,
    active: int = 10,
    repeat: int = 1,
    skip_first: int = 0,
    ranks: str | int | Sequence[int] = "all",
    shapes: bool = True,
    memory: bool = False,
    stacks: bool = False,
    environment: bool = True,
) -> AbstractContextManager[Recording]: ...


@overload
def capture(
    folder: str | Path,
    *,
    operations: Literal[False] = False,
    at_steps: Sequence[int] = (),
    on_signal: str | None = None,
    outlier: float | None = None,
    limit: int = 3,
    active: int = 3,
    ranks: str | int | Sequence[int] = "all",
    shapes: bool = True,
    memory: bool = False,
    stacks: bool = False,
    environment: bool = True,
) -> AbstractContextManager[TriggeredRecording]: ...


def capture(folder: str | Path, *, operations: bool = False, **options: Any) -> Any:
    """Record the training that runs in the block, one file for each rank.

    Args:
        folder: where the files go.
        operations: False profiles some steps in full detail; True logs one row for each
            operation, cheaply enough to be left on.
        options: with operations=False, `wait`, `warmup`, `active`, `repeat` and `skip_first`
            (numbers of steps), `ranks` ("all", a list, or how many), `shapes`, `memory`,
            `stacks` and `environment`. Instead of a schedule, triggers profile `active` steps
            each, `limit` times at most: `at_steps` (step numbers), `on_signal` ("SIGUSR1"),
            `outlier` (a step that takes so many times the usual). With operations=True,
            `rotate_mib`, `keep`, `first_step` and `worker`.

    >>> import htk, tempfile
    >>> with htk.capture(tempfile.mkdtemp(), wait=0, warmup=0, active=2) as recording:
    ...     for _ in range(2):
    ...         recording.step()
    >>> len(recording.paths)
    1
    """
    if operations:
        return logged_operations(folder, **options)
    triggered = any(options.get(name) for name in ("at_steps", "on_signal", "outlier"))
    return (triggered_steps if triggered else profiled_steps)(folder, **options)


@contextmanager
def logged_operations(
    folder: str | Path,
    *,
    rotate_mib: int = 64,
    keep: int = 16,
    first_step: int = 0,
    worker: Worker | None = None,
) -> Iterator[OperationLog]:
    """Log a row for each operation of this rank, in files of `rotate_mib` of which `keep` stay.

    `keep=0` keeps all. `worker` says where the rank stands in the job, where neither Megatron's
    groups nor plain data parallelism tell it. `first_step` is the number of the first step.
    """
    require_extra("torch", "a recording")
    import torch

    rank, world = _find_rank(torch)
    clock: Clock = DeviceClock(torch.cuda) if torch.cuda.is_available() else HostClock()
    log = OperationLog(
        Path(folder),
        worker or megatron_worker(rank, world),
        clock,
        rotate_mib=rotate_mib,
        keep=keep,
        first_step=first_step,
    )
    try:
        yield log
    finally:
        log.close()


@contextmanager
def profiled_steps(
    folder: str | Path,
    *,
    wait: int = 1,
    warmup: int = 2,
    active: int = 10,
    repeat: int = 1,
    skip_first: int = 0,
    ranks: str | int | Sequence[int] = "all",
    shapes: bool = True,
    memory: bool = False,
    stacks: bool = False,
    environment: bool = True,
) -> Iterator[Recording]:
    """Record `active` steps after `wait` and `warmup` ones, `repeat` times (0: until the end).

    One file for each rank and time, rank00003.0.pt.trace.json.gz. `ranks`: "all", a list, or a
    number of them spread evenly (0 and on). Shapes tell the work and the micro-batch, memory tells
    what holds it, stacks tell modules and Python and cost most. `environment` sets what NCCL's
    flight recorder needs, where no process group exists yet and nothing else is set; `hints` of
    the recording say what could not be.
    """
    require_extra("torch", "a recording")
    import torch
    from torch.profiler import schedule

    where, rank, world = Path(folder), *_find_rank(torch)
    needed = skip_first + wait + warmup + active
    hints = _prepare_recorder(torch, where) if environment else []
    chosen = _choose_ranks(ranks, world)
    if rank not in chosen:
        yield Recording(where, rank, False, needed, tuple(hints))
        return
    where.mkdir(parents=True, exist_ok=True)
    recording = Recording(where, rank, True, needed, tuple(hints))
    plan = schedule(wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first)
    with _build_profiler(torch, recording, plan, shapes, memory, stacks) as profiler:
        recording._profiler = profiler
        yield recording
    scheduled = skip_first + (wait + warmup + active) * max(repeat, 1)
    if recording.steps < scheduled:
        warnings.warn(_describe_unfinished(recording, scheduled), stacklevel=3)
    _say_written(recording, min(chosen))


@contextmanager
def triggered_steps(
    folder: str | Path,
    *,
    at_steps: Sequence[int] = (),
    on_signal: str | None = None,
    outlier: float | None = None,
    limit: int = 3,
    active: int = 3,
    ranks: str | int | Sequence[int] = "all",
    shapes: bool = True,
    memory: bool = False,
    stacks: bool = False,
    environment: bool = True,
) -> Iterator[TriggeredRecording]:
    """Record `active` steps whenever something triggers it, `limit` times at most.

    Between recordings a step costs two readings of the clock. A signal and a slow step are those of
    one process, which then records by itself; chosen steps are recorded by all ranks. The slow step
    is over when it is noticed: what is recorded are the steps after it.
    """
    require_extra("torch", "a recording")
    import torch

    where, rank, world = Path(folder), *_find_rank(torch)
    hints = _prepare_recorder(torch, where) if environment else []
    triggers = triggers_of(at_steps, outlier)
    chosen = _choose_ranks(ranks, world)
    recorded = rank in chosen
    recording = TriggeredRecording(
        where, rank, recorded, 0, tuple(hints), triggers=triggers, active=active, limit=limit
    )
    recording._profiled = lambda plan: _build_profiler(
        torch, recording, plan, shapes, memory, stacks
    )
    if recorded:
        where.mkdir(parents=True, exist_ok=True)
    with listen_for_signal(triggers, on_signal):
        try:
            recording.begin()
            yield recording
        finally:
            recording.end()
    _say_written(recording, min(chosen))


def _describe_unfinished(recording: Recording, scheduled: int) -> str:
    """Return what to say where the loop ended before the schedule did."""
    steps = f"{recording.steps} steps were told with recording.step()"
    if not recording.paths:
        rank = f"nothing was recorded on rank {recording.rank}"
        return f"{rank}: {steps}, and the first file needs {recording.needed}"
    return f"the recording is shorter than planned: {steps}, and the schedule has {scheduled}"


def _say_written(recording: Recording, first_rank: int) -> None:
    """Say which files there are, on one rank for all."""
    if recording.paths and recording.rank == first_rank:
        names = ", ".join(path.name for path in recording.paths[:4])
        more = f" and {len(recording.paths) - 4} more" if len(recording.paths) > 4 else ""
        print(f"htk: recorded {names}{more} in {recording.folder}", file=sys.stderr)


def _build_profiler(
    torch: Any, recording: Recording, plan: Any, shapes: bool, memory: bool, stacks: bool
) -> Any:
    """torch's profiler with what the analyses need."""

    def write_trace(profiler: Any) -> None:
        name = f"rank{recording.rank:05d}.{len(recording.paths)}.pt.trace.json.gz"
        profiler.export_chrome_trace(str(recording.folder / name))
        recording.paths.append(recording.folder / name)

    return environment_recorded(torch.profiler.profile)(
        schedule=plan,
        on_trace_ready=write_trace,
        record_shapes=shapes,
        profile_memory=memory,
        with_stack=stacks,
        with_modules=stacks,
        experimental_config=_event_synchronisation(torch),
    )


def _event_synchronisation(torch: Any) -> Any:
    """Records of events that streams wait for: what-ifs need them. None: this torch has none."""
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None


def _find_rank(torch: Any) -> tuple[int, int]:
    """Rank and number of ranks: of the process group, else of the launcher, else one of one."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    for rank, world in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        if rank in os.environ:
            return int(os.environ[rank]), int(os.environ.get(world, "1"))
    return 0, 1


def _choose_ranks(ranks: str | int | Sequence[int], world: int) -> set[int]:
    if isinstance(ranks, str):
        if ranks != "all":
            raise UsageError(f"ranks={ranks!r}: give 'all', a list, or a number of them")
        return set(range(world))
    if isinstance(ranks, int):
        if ranks < 1:
            raise UsageError(f"ranks={ranks}: one rank at least must be recorded")
        some = min(ranks, world)
        return {k * world // some for k in range(some)}
    return set(ranks)


def _prepare_recorder(torch: Any, folder: Path) -> list[str]:
    """Set the flight recorder's variables; say what it is too late for."""
    distributed = torch.distributed
    begun = distributed.is_available() and distributed.is_initialized()
    dumps = {name: str(folder / "comm_lib_trace_rank_") for name in _DUMPS}
    missing = {k: v for k, v in {**FLIGHT_RECORDER, **dumps}.items() if k not in os.environ}
    hints = []
    if not begun:
        os.environ.update(missing)
    elif missing.keys() & FLIGHT_RECORDER.keys():
        hints.append(
            "the process group exists already: for a flight recorder begin the recording before "
            "init_process_group, or set " + _spell_variables(FLIGHT_RECORDER)
        )
    if "NCCL_DEBUG" not in os.environ and torch.cuda.is_available():
        wanted = _NCCL_LOG | {"NCCL_DEBUG_FILE": str(folder / "nccl.%h.%p.log")}
        hints.append(
            "for algorithms, protocols and channels set before the start: "
            f"{_spell_variables(wanted)}"
        )
    return hints


def _spell_variables(variables: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())
