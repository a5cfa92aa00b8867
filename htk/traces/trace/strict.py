"""What `--strict` refuses: files that were not read, or not whole."""

from collections.abc import Sequence

from htk.base.errors import MalformedTrace, UnknownFormat
from htk.traces.trace.file import TraceFile


def refuse_losses(
    parts: Sequence[TraceFile], unread: list[str], failed: list[tuple[str, str]]
) -> None:
    """--strict: any loss is an error."""
    if failed:
        raise MalformedTrace(failed[0][1])
    if unread:
        raise UnknownFormat(f"{unread[0]}: not a trace that htk knows")
    for part in parts:
        issues = part.table("parse_issues")
        if issues.num_rows:
            first = issues.slice(0, 1).to_pylist()[0]
            where = "" if first["offset"] is None else f" at byte {first['offset']}"
            raise MalformedTrace(
                f"{part.file}: {first['kind']}{where} ({first['text']}); "
                "without --strict whole events are kept"
            )
