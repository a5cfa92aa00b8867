"""What formats of operation-level rows share: which column is which, in which unit.

Columns are told by name, whatever the logger calls them; a unit is told by the name's ending
(`start_us`), by the column's type, or by the size of the numbers, in this order. Where none of
them tells, the file is refused with the line that says how to name the columns.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from htk.base.columns.arrow import build_numbers, map_texts, mark_valid, read_numbers
from htk.base.core.stated_counts import INDEX, STEP
from htk.base.errors import MalformedTrace, UsageError
from htk.base.mappings import Facts
from htk.base.schema import FLOAT64, INT32, INT64, TABLES, TEXT
from htk.base.schema.operation_types import operation_type
from htk.parsers.common.log_records import Issues

_NAMES: dict[str, tuple[str, ...]] = {
    "rank": ("rank", "global_rank", "world_rank"),
    "dp_rank": ("dp_rank", "dp", "data_parallel_rank"),
    "stage": (
        "stage",
        "pp",
        "pp_rank",
        "pipeline_stage",
        "pipeline_rank",
        "pipeline_parallel_rank",
    ),
    "chunk": ("chunk", "mc", "model_chunk", "vpp_rank", "virtual_stage"),
    "micro_batch": ("micro_batch", "mb", "mb_id", "microbatch", "micro_batch_id", "microbatch_id"),
    "step": ("step", "iteration", "iter", "global_step"),
    "index_in_type": ("index_in_type", "sequence", "seq_id", "seq"),
    "type": ("type", "optype", "op_type", "operation", "op", "name", "event"),
    "start": ("start", "start_ts", "start_time", "ts", "begin", "timestamp"),
    "duration": ("duration", "dur", "elapsed"),
    "end": ("end", "end_ts", "end_time"),
}
_UNITS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_SINCE_1970 = {"ns": 1e17, "us": 1e14, "ms": 1e11}  # least of each unit, in 1973
_FURTHEST = 1 << 61  # ns: what lies beyond is damage
_ROLE_OF = {alias: role for role, aliases in _NAMES.items() for alias in aliases}
_ByRole = dict[str, tuple[Any, str | None]]  # what a column holds: its values and stated unit
REQUIRED = "type, step, start, duration (or end), and rank or dp_rank"


def role_of(column: str) -> tuple[str, str | None] | None:
    """Return what a column holds and the unit that its name states; None: it is not ours."""
    plain = column.strip().lower().replace("-", "_").replace(" ", "_")
    if plain in _ROLE_OF:
        return _ROLE_OF[plain], None
    bare, _, unit = plain.rpartition("_")
    if unit in _UNITS and _ROLE_OF.get(bare) in ("start", "duration", "end"):
        return _ROLE_OF[bare], unit
    return None


def are_rows(columns: list[str]) -> bool:
    """Return whether these are the columns of operation-level rows."""
    roles = {role[0] for role in map(role_of, columns) if role}
    timed = "start" in roles and bool(roles & {"duration", "end"})
    return timed and {"type", "step"} <= roles and bool(roles & {"rank", "dp_rank"})


def select_read_columns(columns: list[str]) -> list[str]:
    """Return the columns that are read; of several for one thing the first."""
    roles: dict[str, str] = {}
    for column in columns:
        role = role_of(column)
        if role:
            roles.setdefault(role[0], column)
    return list(roles.values())


def unit_of_start(name: str, columns: Facts, time_unit: str | None) -> str | None:
    """Return the unit of starts where none is asked for and their name states none."""
    for column, values in columns.items():
        role_unit = role_of(column)
        if role_unit and role_unit[0] == "start":
            stated = time_unit is not None or role_unit[1] is not None
            return time_unit if stated else _read_moments(name, (values, None), None)[1]
    return time_unit


def operations_table(
    name: str, columns: Facts, issues: Issues, time_unit: str | None = None
) -> pa.Table:
    """The recorded columns as `job_operations`; rows that cannot be are left out and counted.

    `time_unit` holds where neither a column's name nor its type says the unit.
    """
    if time_unit is not None and time_unit not in _UNITS:
        raise UsageError(f"time_unit={time_unit!r}: expected one of {', '.join(_UNITS)}")
    by_role: _ByRole = {}
    for column, values in columns.items():
        role_unit = role_of(column)
        if role_unit:
            by_role.setdefault(role_unit[0], (values, role_unit[1]))
    length = len(by_role["type"][0])
    start, end, timed = _read_times(name, by_role, time_unit)
    step, stepped = _read_integers(by_role.get("step"), length)
    type_ = map_texts(by_role["type"][0].cast(TEXT), operation_type)
    stepped &= STEP.believes_each(step)
    good = timed & stepped & mark_valid(type_)
    _count_issues(issues, timed, stepped)
    filled: dict[str, pa.Array] = {
        "type": type_,
        "step": build_numbers(np.where(stepped, step, 0), INT32),
    }
    filled |= {"start_ns": build_numbers(start, INT64), "end_ns": build_numbers(end, INT64)}
    for role in ("rank", "dp_rank", "stage", "chunk", "micro_batch", "index_in_type"):
        values, has_value = _read_integers(by_role.get(role), length)
        has_value &= INDEX.believes_each(values)  # -1 is how loggers say none
        filled[role] = build_numbers(np.where(has_value, values, 0), INT32, has_value)
    filled |= _build_workers(filled, by_role)
    schema = pa.schema([f for f in TABLES["job_operations"] if f.name != "cycle"])
    table = pa.table([filled[field.name] for field in schema], schema=schema)
    return table if good.all() else table.filter(pa.array(good))


def _build_workers(filled: dict[str, pa.Array], by_role: _ByRole) -> dict[str, pa.Array]:
    """Without stages each rank is a replica of its own."""
    defaults: dict[str, pa.Array] = {}
    length = len(filled["type"])
    if "stage" not in by_role:
        defaults["stage"] = build_numbers(np.zeros(length, np.int64), INT32)
        if "dp_rank" not in by_role:
            defaults["dp_rank"] = filled["rank"]
    return defaults


def _read_times(
    name: str, by_role: _ByRole, time_unit: str | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Start and end in ns, and which rows have them."""
    start, unit, has_start = _read_moments(name, by_role["start"], time_unit)
    other = "duration" if "duration" in by_role else "end"
    second, _, also = _read_moments(name, by_role[other], unit)
    end = start + second if other == "duration" else second
    return start, end, has_start & also & (end >= start)


def _read_moments(
    name: str, column: tuple[Any, str | None], like: str | None
) -> tuple[NDArray[np.int64], str, NDArray[np.bool_]]:
    """Return a column of times in ns, their unit, and which rows have one."""
    values, unit = column
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        unit = values.type.unit
        values = values.cast(INT64)
    has_time = mark_valid(values)
    if pa.types.is_integer(values.type):
        integral = read_numbers(values).astype(np.int64)
        unit = unit or like or _unit_by_size(name, integral[has_time])
        has_time = has_time & (np.abs(integral) < _FURTHEST // _UNITS[unit])
        return np.where(has_time, integral, 0) * _UNITS[unit], unit, has_time
    try:
        real = read_numbers(values.cast(FLOAT64), np.nan)
    except pa.ArrowInvalid:
        raise MalformedTrace(f"{name}: times are not numbers, e.g. {values[0].as_py()!r}") from None
    unit = unit or like or "s"
    has_time = np.isfinite(real) & (np.abs(real) < _FURTHEST / _UNITS[unit])
    real = np.where(has_time, real, 0.0)
    integral = np.floor(real)  # apart, so that seconds since 1970 keep their nanoseconds
    part = np.rint((real - integral) * _UNITS[unit])
    return integral.astype(np.int64) * _UNITS[unit] + part.astype(np.int64), unit, has_time


def _unit_by_size(name: str, moments: NDArray[np.int64]) -> str:
    """Whole numbers since 1970 tell their unit; others do not."""
    usual = float(np.median(moments)) if len(moments) else 0.0
    for unit, least in _SINCE_1970.items():
        if usual >= least:
            return unit
    raise MalformedTrace(
        f"{name}: the column start holds whole numbers without a unit; name it start_ns, "
        "start_us, start_ms or start_s (and duration likewise), or give --time-unit"
    )


def _read_integers(column: Any, length: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return a column of whole numbers, and which rows have one."""
    if column is None or pa.types.is_null(column[0].type):
        return np.zeros(length, np.int64), np.zeros(length, bool)
    values = column[0]
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_string(values.type) or pa.types.is_floating(values.type):
        real = pc.cast(values, FLOAT64, safe=False) if _is_numeric(values) else None
        if real is None:
            return np.zeros(length, np.int64), np.zeros(length, bool)
        data = read_numbers(real, np.nan)
        is_number = np.isfinite(data) & (np.abs(data) < 2**53)
        return np.where(is_number, data, 0).astype(np.int64), is_number
    return read_numbers(values).astype(np.int64), mark_valid(values)


def _is_numeric(values: Any) -> bool:
    try:
        values.cast(FLOAT64)
    except pa.ArrowInvalid:
        return False
    return True


def _count_issues(issues: Issues, timed: NDArray[np.bool_], stepped: NDArray[np.bool_]) -> None:
    if not timed.all():
        issues.add(
            "invalid_time",
            "rows without a start, or that end before they start",
            count=int((~timed).sum()),
        )
    if not stepped.all():
        issues.add("without_step", "rows without a step", count=int((~stepped).sum()))
