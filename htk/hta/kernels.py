"""HTA's questions about kernels and who launched them: launches, sequences, stragglers, CUPTI."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from htk.answers.export.rewrite import write_changed_copy
from htk.base.columns.arrow import match_texts, read_lengths, read_numbers
from htk.base.errors import MissingTable, UsageError
from htk.base.io.sources import resolve_inputs
from htk.hta.frames import Frames
from htk.parsers.kineto import scan

# Floating-point operations of an instruction of one thread, by CUPTI's counter of it.
CUDA_SASS_INSTRUCTION_COUNTER_FLOPS = {
    f"smsp__sass_thread_inst_executed_op_{precision}{op}_pred_on.sum": 2 if op == "fma" else 1
    for precision in "fhd"
    for op in ("fma", "mul", "add")
}
_SIGNIFICANT = 0.01  # of a mean step: shorter communication makes no straggler


def list_launches(frames: Frames, rank: int, include_memory: bool) -> pd.DataFrame:
    """Every launched activity: the call's time, its own, and how long it waited after the call."""
    gpu = frames.build_frame(rank).sort_values("launch_index", kind="stable")
    gpu = gpu[gpu["launch_ts"].notna()]
    if not include_memory:
        gpu = gpu[gpu["kernel_type"] != "MEMORY"]
    delay = (gpu["ts"] - gpu["launch_ts"] - gpu["launch_dur"]).clip(lower=0)
    return pd.DataFrame(
        {
            "correlation": gpu["correlation"],
            "cpu_duration": gpu["launch_dur"],
            "gpu_duration": gpu["dur"],
            "launch_delay": delay.round(3),
        }
    ).reset_index(drop=True)


class Operators:
    """CPU operators of a trace by row, and who called whom."""

    def __init__(self, frames: Frames) -> None:
        self._tables = frames.trace.tables
        ops = self._tables["cpu_ops"]
        links = self._tables["op_links"]
        self.names = ops["name"]
        self.start = read_numbers(ops["start_ns"])
        self.time = read_numbers(ops["end_ns"]) - self.start
        self.parent = read_numbers(links["parent_row"], -1)
        self.depth = read_numbers(links["depth"], -1)
        self.thread = ops["thread"].to_pylist()
        self.event = read_numbers(ops["event"], -1)
        self.rank = read_numbers(ops["rank"], -1)

    def named(self, text: str) -> np.ndarray:
        return match_texts(self.names, lambda name: text in name)

    @cached_property
    def aten(self) -> np.ndarray:
        return match_texts(self.names, lambda name: name.startswith("aten::"))

    def above(self, rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the innermost wanted operator at or above each (-1: none)."""
        above = rows.copy()
        wanted = np.append(wanted, False)
        parent = np.append(self.parent, -1)
        while len(climb := np.flatnonzero((above >= 0) & ~wanted[above])):
            above[climb] = parent[above[climb]]  # a level of the call tree at a time
        return above


def find_kernel_sequences(
    frames: Frames, operator: str, folder: Path, shortest: int, rank: int, top: int
) -> pd.DataFrame:
    """Return which kernels the operators of a name launch, how often, at what cost."""
    if not operator:
        raise UsageError("operator_name is empty; give (part of) an operator's name")
    gpu = frames.build_frame(rank).sort_values("ts", kind="stable")
    ops = Operators(frames)
    wanted = ops.named(operator) & (ops.rank == rank)
    if wanted.any():  # only the outermost: others are a part of them
        wanted &= ops.depth == ops.depth[wanted].min()
    root = ops.above(gpu["op_row"].to_numpy(), wanted)
    totals: dict[str, list[float]] = {}
    events: dict[str, set[int]] = {}
    for row, launched in gpu[root >= 0].groupby(root[root >= 0]):
        if len(launched) < shortest:
            continue
        name = str(ops.names[int(row)])
        pattern = "|".join([name, *launched["name"]])
        sums = totals.setdefault(pattern, [0, 0.0, 0.0])
        sums[0] += 1
        sums[1] += launched["dur"].sum()
        sums[2] += ops.time[int(row)] / 1000
        events.setdefault(pattern, set()).update({int(ops.event[int(row)]), *launched["index"]})
    units = ["GPU kernel duration (us)", "CPU op duration (us)"]
    table = pd.DataFrame(
        [(pattern, *sums) for pattern, sums in totals.items()], columns=["pattern", "count", *units]
    )
    table = table.sort_values(["count", "pattern"], ascending=[False, True], ignore_index=True)
    if len(table):
        best = {p: int(c) for p, c in zip(table["pattern"][:top], table["count"], strict=False)}
        _mark_patterns(frames, rank, folder, best, {p: events[p] for p in best})
    return table


def _mark_patterns(
    frames: Frames, rank: int, folder: Path, best: dict[str, int], events: dict[str, set[int]]
) -> None:
    """A copy of the rank's file whose events name the patterns they are part of."""
    part = frames.file_of(rank)
    of_event: dict[int, dict[str, int]] = {}
    for pattern, rows in events.items():
        for row in rows:
            of_event.setdefault(row - part.first_event, {})[pattern] = best[pattern]

    def rewrite_event(row: int, text: bytes) -> bytes:
        if row not in of_event:
            return text
        patterns = b'"Patterns": ' + json.dumps(of_event[row]).encode()
        members, end = scan.scan_members(text, 0)
        written = []
        for key, value in members:
            if scan.unquote_string(key) == "args" and value.startswith(b"{"):
                inner = value[1:-1].strip()
                value = b"{" + (inner + b", " if inner else b"") + patterns + b"}"
                patterns = b""
            written.append(key + b": " + value)
        if patterns:
            written.append(b'"args": {' + patterns + b"}")
        return b"{" + b", ".join(written) + b"}" + text[end:]

    name = Path(part.file).name
    target = folder / f"overlaid_{name if name.endswith('.gz') else name + '.gz'}"
    target.unlink(missing_ok=True)  # the same question may be asked again
    (source,) = resolve_inputs(part.file)
    write_changed_copy(source, target, lambda _, value: value, rewrite_event)


def aten_delays(frames: Frames, rank: int, sort_by: Sequence[str]) -> pd.DataFrame:
    """Return the kernels of each ATen operator's calls, and the delays to the first of them."""
    gpu = frames.build_frame(rank)
    ops = Operators(frames)
    gpu = gpu[gpu["launch_ts"].notna()].sort_values("launch_ts", kind="stable")
    row = ops.above(gpu["op_row"].to_numpy(), ops.aten)
    gpu = gpu[row >= 0]
    row = row[row >= 0]
    calls = pd.DataFrame(
        {
            "row": row,
            "aten_op_name": ops.names.take(pa.array(row)).to_pylist(),
            "kernel": gpu["name"].to_numpy(),
            "to_launch": gpu["launch_ts"].to_numpy() - frames.microseconds(ops.start[row]),
            "to_kernel": (gpu["ts"] - gpu["launch_ts"]).to_numpy(),
        }
    )
    of_call = calls.groupby("row", sort=False).agg(
        aten_op_name=("aten_op_name", "first"),
        kernel_sequence=("kernel", " -> ".join),
        to_launch=("to_launch", "first"),
        to_kernel=("to_kernel", "first"),
    )
    of_sequence = of_call.groupby(["aten_op_name", "kernel_sequence"]).agg(
        occurrence_count=("to_kernel", "count"),
        avg_aten_op_launch_delay=("to_launch", "mean"),
        avg_runtime_delay=("to_kernel", "mean"),
    )
    delays = {"avg_aten_op_launch_delay": 3, "avg_runtime_delay": 3}
    return of_sequence.reset_index().sort_values(list(sort_by), ascending=False).round(delays)


def find_stragglers(frames: Frames, steps: Sequence[int], most: int) -> list[int]:
    """Ranks that start late in the long communication whose time differs most between ranks."""
    if len(frames.ranks) < 2:
        raise UsageError("a straggler is late among others; the trace has one rank")
    every = pd.concat([gpu.assign(rank=rank) for rank, gpu in frames.gpu.items()])
    every = every[every["iteration"].isin(steps)]
    first = every["ts"].min()
    mean_step = ((every["ts"] + every["dur"]).max() - first) / max(len(steps), 1)
    comm = every[every["kernel_type"] == "COMMUNICATION"]
    comm = comm[comm["dur"] >= _SIGNIFICANT * mean_step].sort_values("ts")
    last = comm.groupby(["rank", "stream", "iteration", "name"], as_index=False).last()
    spread = last.groupby(["stream", "iteration", "name"])["dur"].std()
    spread = spread.groupby(["stream", "name"]).mean().dropna()
    if spread.empty:
        raise MissingTable("no communication of 1 % of a step or longer that ranks share")
    stream, name = spread.idxmax()
    chosen = last[(last["stream"] == stream) & (last["name"] == name)]
    late = chosen.groupby("iteration")["ts"].rank(ascending=False, method="min") <= most
    counts = late.groupby(chosen["rank"]).sum().sort_values(ascending=False, kind="stable")
    return [int(rank) for rank in counts.index[:most]]


def read_cupti_counters(frames: Frames, rank: int) -> pd.DataFrame | None:
    """CUPTI's counters of each kernel, with the operators that launched it; None: none recorded."""
    events = frames.trace.tables["events"]
    is_counted = match_texts(events["category"], "cuda_profiler_range".__eq__)
    rows = events.filter(pa.array(is_counted & (read_numbers(events["rank"], -1) == rank)))
    if not rows.num_rows:
        return None
    rows = rows.sort_by("start_ns")
    calls = _launch_calls(frames, rank)
    if calls.num_rows != rows.num_rows:
        raise MissingTable(
            f"{rows.num_rows} counted kernels, {calls.num_rows} launches: they cannot be paired"
        )
    frame = pd.DataFrame(
        {
            "name": rows["name"].to_pylist(),
            "cat": rows["category"].to_pylist(),
            "ts": frames.microseconds(read_numbers(rows["start_ns"])),
            "dur": read_lengths(rows) / 1000,
        }
    )
    values = pd.DataFrame([json.loads(text or "{}") for text in rows["arguments"].to_pylist()])
    ops = Operators(frames)
    stacks = [_list_stack(ops, row) for row in read_numbers(calls["op_row"], -1).tolist()]
    frame = pd.concat([frame, values], axis=1)
    frame["op_stack"] = stacks
    frame["top_level_op"] = [stack[0] if stack else "" for stack in stacks]
    frame["bottom_level_op"] = [stack[-1] if stack else "" for stack in stacks]
    return frame


def _launch_calls(frames: Frames, rank: int) -> pa.Table:
    """Kernel launches of a rank in order: the profiler counts one kernel after the other."""
    tables = frames.trace.tables
    calls = tables["launches"]
    calls = calls.append_column("op_row", tables["launch_links"]["op_row"])
    launches_kernel = match_texts(calls["name"], lambda name: "LaunchKernel" in name)
    launches_kernel &= read_numbers(calls["rank"], -1) == rank
    return calls.filter(pa.array(launches_kernel)).sort_by("start_ns")


def _list_stack(ops: Operators, row: int) -> list[str]:
    """Return the names of the operators round a call, outermost first."""
    names = []
    while row >= 0:
        names.append(str(ops.names[row]))
        row = int(ops.parent[row])
    return names[::-1]
