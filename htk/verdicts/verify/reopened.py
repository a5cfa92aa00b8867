"""The same files opened another way: alone, without the cache, by the pure engine, merged."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.core.engine import choose_engine
from htk.base.core.humanize import format_bytes, pluralize_count
from htk.base.errors import HtkError
from htk.base.io.shared_store import SharedStore
from htk.base.io.store import Store
from htk.base.mappings import Fields
from htk.base.schema import TABLES
from htk.quantities.derived.registry import PER_FILE
from htk.traces.trace.opening import OpenOptions, open_trace
from htk.traces.trace.trace import Trace
from htk.verdicts.verify.check import Check
from htk.verdicts.verify.subject import Rows, Subject, add_rows, key_rows, rows_of
from htk.verdicts.verify.tally import NotApplicable, Tally

_MOST_RANKS = 16
_MADE = tuple(PER_FILE)  # tables made of those of a file, which the cache keeps beside them
_OF_ONE_RANK: tuple[tuple[str, tuple[str, ...], Fields], ...] = (
    ("time_breakdown", ("device", "step"), {"per": "step"}),
    ("time_breakdown", ("device",), {}),
    ("kernel_top", ("name",), {"n": 0, "per": "rank"}),
    ("op_breakdown", ("op",), {"n": 0, "per": "rank"}),
    ("annotation_breakdown", ("name",), {}),
    ("phase_breakdown", ("phase",), {}),
    ("launch_stats", ("launched_by",), {"n": 0}),
    ("memory_bandwidth", ("direction", "memory"), {}),
    ("idle_breakdown", ("device", "cause"), {}),
    ("host_stalls", ("cause", "name", "stack"), {"n": 0}),
    ("collective_times", ("source", "event", "type", "start_ns", "end_ns"), {}),
)
_POOLED: tuple[tuple[str, tuple[str, ...], Fields, tuple[str, ...]], ...] = (
    ("kernel_top", ("name",), {"n": 0}, ("count", "total_ns")),
    (
        "op_breakdown",
        ("op",),
        {"n": 0},
        ("count", "cpu_total_ns", "cpu_self_ns", "device_total_ns", "device_self_ns", "kernels"),
    ),
    (
        "python_hotspots",
        ("function",),
        {"n": 0},
        ("count", "total_ns", "self_ns", "operators_ns", "device_total_ns"),
    ),
    ("module_breakdown", ("module",), {"n": 0}, ("operators", "device_self_ns", "kernels")),
)


def checks() -> list[Check]:
    """Return the checks that open files a second time."""
    return [
        Check("rank alone", "each rank opened alone against all ranks together", _check_alone),
        Check("store", "entries of a store of `htk map` against their seals", _check_sealed),
        Check("cache", "tables from the cache against tables parsed anew", _check_cache),
        Check(
            "engines", "tables of the compiled core against those of its pure twin", _check_engines
        ),
        Check(
            "merged",
            "`convert --format chrome`, read again, against the files it merges",
            _check_merged,
        ),
    ]


def _check_sealed(subject: Subject, tally: Tally) -> None:
    shared = SharedStore.at(str(subject.inputs)) if isinstance(subject.inputs, str | Path) else None
    if shared is None:
        raise NotApplicable("no store of htk map")
    for key, why in shared.seals(Store()).items():
        tally.equal(f"entry {key}", why or "sealed", "sealed")


def _check_alone(subject: Subject, tally: Tally) -> None:
    _not_quick(subject)
    ranks = subject.trace.ranks
    if len(ranks) < 2:
        raise NotApplicable("one rank, which is alone")
    ranks_of: dict[str, set[object]] = {}
    for file in subject.files:
        ranks_of.setdefault(str(file["file"]), set()).add(file["rank"])
    if any(len(held) > 1 for held in ranks_of.values()):
        raise NotApplicable("a file holds several ranks, so none can be opened alone")
    chosen = ranks[:_MOST_RANKS]
    pooled: dict[str, Rows] = {}
    for rank in chosen:
        alone = _open_files(subject, [f["file"] for f in subject.files if f["rank"] == rank], rank)
        for analysis, keys, options in _OF_ONE_RANK:
            _same_rows(subject, tally, alone, rank, (analysis, keys, options))
        for analysis, keys, options, values in _POOLED:
            rows = rows_of(alone, analysis, keys, values, **options)
            add_rows(pooled.setdefault(analysis, {}), rows)
    if len(chosen) < len(ranks):
        tally.left_out.append(f"{len(ranks) - len(chosen)} of {len(ranks)} ranks")
    elif not any(row["rank"] is None for row in subject.files):
        for analysis, keys, options, values in _POOLED:
            together = rows_of(subject.trace, analysis, keys, values, **options)
            tally.rows(f"{analysis} pooled", together, pooled[analysis])


def _same_rows(
    subject: Subject,
    tally: Tally,
    alone: Trace,
    rank: int,
    question: tuple[str, tuple[str, ...], Fields],
) -> None:
    """Compare the times and counts of one rank's rows; shares and percentiles follow from them."""
    analysis, keys, options = question
    together = subject.answer_or_none(analysis, **options)
    values = () if together is None else _whole_numbers(together, analysis)
    ours = {} if together is None else key_rows(together, ("rank", *keys), values)
    ours = {key: row for key, row in ours.items() if key[0] == rank}
    theirs = rows_of(alone, analysis, ("rank", *keys), values, **options)
    tally.rows(f"{analysis}, rank alone: row", theirs, ours)


def _whole_numbers(table: pa.Table, analysis: str) -> tuple[str, ...]:
    """Return the columns that are sums of this rank alone."""
    if analysis == "collective_times":
        return ("in_bytes",)  # the rest depends on the other ranks
    return tuple(
        f.name
        for f in table.schema
        if pa.types.is_integer(f.type) and (f.name.endswith("_ns") or f.name in _COUNTS)
    )


_COUNTS = ("count", "kernels", "gpu_ranges", "launching_calls")


def _check_cache(subject: Subject, tally: Tally) -> None:
    _not_quick(subject)
    if not subject.options.cache:
        raise NotApplicable("--no-cache")
    for file, rank in _one_by_one(subject, tally):
        kept = _open_files(subject, [file], rank)
        fresh = _open_files(subject, [file], rank, cache=False)
        for name in (*TABLES, *_MADE):
            _same_table(tally, f"{Path(file).name}, {name}", kept.tables[name], fresh.tables[name])


def _check_engines(subject: Subject, tally: Tally) -> None:
    _not_quick(subject)
    if choose_engine() != "compiled":
        raise NotApplicable("the compiled core is not in use")
    if not subject.profiles:
        raise NotApplicable("no profiler trace: others have one reader")
    profiles = {row["file"] for row in subject.profiles}
    for file, rank in _one_by_one(subject, tally):
        if file not in profiles:
            continue
        names = (*TABLES, *_MADE)
        trace = _open_files(subject, [file], rank, cache=False)
        compiled = {name: trace.tables[name] for name in names}
        with _pure_engine():
            trace = _open_files(subject, [file], rank, cache=False)
            pure = {name: trace.tables[name] for name in names}
        for name in names:
            what = f"{Path(file).name}, {name}"
            _same_table(tally, what, pure[name], compiled[name], leave_out=("engine",))


def _check_merged(subject: Subject, tally: Tally) -> None:
    _not_quick(subject)
    ranks = [row["rank"] for row in subject.profiles]
    if len(set(ranks)) < 2:
        raise NotApplicable("one rank, nothing to merge")
    if len(ranks) > _MOST_RANKS or subject.second.read_bytes > subject.largest_bytes:
        raise NotApplicable(
            f"more than {_MOST_RANKS} files or {format_bytes(subject.largest_bytes)}"
        )
    from htk.answers.export.merged import write_merged

    with tempfile.TemporaryDirectory() as folder:
        written = write_merged(subject.trace, subject.sources, Path(folder))
        merged = open_trace(str(written.file), OpenOptions(cache=False))
        drifts = subject.trace.tables["rank_clocks"]["drift_ppm"].to_pylist()
        for analysis, keys, options, values in _POOLED:
            together = rows_of(subject.trace, analysis, keys, values, **options)
            again = rows_of(merged, analysis, keys, values, **options)
            if written.aligned and any(drifts):
                again = _without_drift(again, together)
            tally.rows(f"{analysis} of the merged file", again, together)


def _without_drift(again: Rows, together: Rows) -> Rows:
    """Return rows with their times as they were on the ranks' own clocks, where only a clock's
    drift and rounding tell them apart; counts stay."""

    def ignore_drift(name: str, value: Any, own: Any) -> Any:
        drifted = name.endswith("_ns") and abs(value - (own or 0)) <= value / 1000 + 1000
        return own if drifted else value

    return {
        key: {name: ignore_drift(name, row[name], together.get(key, row)[name]) for name in row}
        for key, row in again.items()
    }


def _not_quick(subject: Subject) -> None:
    if subject.quick:
        raise NotApplicable("--quick opens nothing a second time")


def _one_by_one(subject: Subject, tally: Tally) -> Iterator[tuple[str, int | None]]:
    """Local files and their ranks, but those too large to be read several times."""
    local = [row for row in subject.files if Path(row["file"]).is_file()]
    small = [row for row in local if _unpacked_bytes(row) <= subject.largest_bytes]
    if len(local) < len(subject.files):
        left = pluralize_count(len(subject.files) - len(local), "file")
        tally.left_out.append(f"{left} not on this machine's disk by themselves")
    if len(small) < len(local):
        left = pluralize_count(len(local) - len(small), "file")
        tally.left_out.append(f"{left} of more than {format_bytes(subject.largest_bytes)}")
    if not small:
        raise NotApplicable("; ".join(tally.left_out) or "no file")
    for row in small:
        yield row["file"], row["rank"]


def _unpacked_bytes(file: Fields) -> int:
    """Guess how much a file holds: traces pack some ten to one."""
    stored = file["file_bytes"] or 0
    return stored if file["file"].endswith((".json", ".txt", ".log")) else 10 * stored


def _open_files(subject: Subject, files: list[str], rank: int | None, **changes: Any) -> Trace:
    """Open some of the files again, as the whole was opened."""
    options = replace(subject.options, rank=rank, **changes)
    try:
        return open_trace(files, options)
    except HtkError as error:
        raise NotApplicable(f"a file alone cannot be opened: {error}") from None


@contextmanager
def _pure_engine() -> Iterator[None]:
    """Read by the pure twin, by the variable with which users choose it."""
    before = os.environ.get("HTK_ENGINE")
    os.environ["HTK_ENGINE"] = "pure"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HTK_ENGINE"]
        else:
            os.environ["HTK_ENGINE"] = before


def _same_table(
    tally: Tally, what: str, left: pa.Table, right: pa.Table, leave_out: tuple[str, ...] = ()
) -> None:
    """Compare two tables column by column, cell by cell."""
    tally.equal(f"{what}, rows", left.num_rows, right.num_rows)
    if left.num_rows != right.num_rows:
        return
    for name in right.column_names:
        if name not in leave_out:
            equal = _same_column(left[name], right[name])
            tally.equal(f"{what}.{name}", "other values" if not equal else "same", "same")


def _same_column(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(left.type):
        left = left.cast(left.type.value_type)
        right = right.cast(right.type.value_type)
    if pa.types.is_floating(left.type):
        values = left.to_numpy(), right.to_numpy()
        return left.null_count == right.null_count and np.array_equal(*values, True)
    return bool(left.equals(right))
