"""Single events of a Kineto file, as its writer lays them out: µs with three decimals."""

from htk.base.core.humanize import format_microseconds
from htk.recording.simulate.clock import BASE_NS


def write_complete_event(
    category: str,
    name: str,
    pid: int | str,
    tid: int | str,
    start: int,
    end: int,
    args: str,
) -> str:
    return (
        f'  {{\n    "ph": "X",\n    "cat": "{category}",\n    "name": "{name}",\n'
        f'    "pid": {_spell_id(pid)},\n    "tid": {_spell_id(tid)},\n'
        f'    "ts": {format_microseconds(start - BASE_NS)},\n'
        f'    "dur": {format_microseconds(end - start)},\n'
        f'    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def write_flow_event(phase: str, kind: str, number: int, pid: int, tid: int, time_ns: int) -> str:
    ending = ', "bp": "e"' if phase == "f" else ""
    return (
        f'  {{\n    "ph": "{phase}",\n    "id": {number},\n    "pid": {pid},\n    "tid": {tid},\n'
        f'    "ts": {format_microseconds(time_ns - BASE_NS)},\n    "cat": "{kind}",\n'
        f'    "name": "{kind}"{ending}\n  }},\n'
    )


def write_instant_event(
    name: str,
    pid: int | str,
    time_ns: int,
    tid: int | str | None = None,
    category: str = "",
    args: str = "",
) -> str:
    """Return an instant event of one thread, or of the whole trace if `tid` is None."""
    scope = "g" if tid is None else "t"
    where = f"Trace {name.split(': ')[-1]}" if tid is None and pid else "" if tid is None else tid
    kind = f'    "cat": "{category}",\n' if category else ""
    more = f',\n    "args": {{\n      {args}\n    }}' if args else ""
    return (
        f'  {{\n    "ph": "i",\n{kind}    "s": "{scope}",\n    "name": "{name}",\n'
        f'    "pid": {_spell_id(pid)},\n    "tid": {_spell_id(where)},\n'
        f'    "ts": {format_microseconds(time_ns - BASE_NS)}{more}\n  }},\n'
    )


def write_metadata_event(name: str, pid: int, tid: int, begin: int, args: str) -> str:
    """Return a metadata event; Kineto gives it the time at which the recording begins."""
    return (
        f'  {{\n    "name": "{name}",\n    "ph": "M",\n'
        f'    "ts": {format_microseconds(begin - BASE_NS)},\n    "pid": {pid},\n'
        f'    "tid": {tid},\n    "args": {{\n      {args}\n    }}\n  }},\n'
    )


def _spell_id(of: int | str) -> str:
    return f'"{of}"' if isinstance(of, str) else str(of)
