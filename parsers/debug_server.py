"""What torch's debug server (2.15) dumps of every rank, and shows on its pages.

`torch.distributed.debug.start_debug_server(dump_dir=DIR)` writes a file of each kind every minute,
`stacks_20261124_224111.txt`; the pages of its port (`http://HOST:25999/stacks`, `/wait_counters`,
`/fr_trace_json`) hold the same as HTML. Each rank's part stands below its address.

Read: wait counters (which of torch's waits a rank is in), health checks, the flight recorder's
JSON, ranks that did not answer; Python stacks are `python_stacks`'. Not read: `fr_trace_*.txt`,
which is torch's own verdict in tables, and `tcpstore_*.txt`.
"""

import json
import re

from htk.base.core.humanize import pluralize_count
from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.mappings import Fields
from htk.parsers.common.line_formats import (
    READ,
    SKIPPED,
    LineFormat,
    LogPart,
    log_format,
    parse_log,
)
from htk.parsers.common.log_lines import SECTION, LogLine
from htk.parsers.common.log_records import Issues, list_of, whole_number
from htk.parsers.common.recorder_dump import entries_of, load_dump
from htk.parsers.common.recorder_groups import ProcessGroups
from htk.parsers.common.recorder_records import rows_of

NAME = "debug_server"

_MARK = re.compile(rb"(?:^|\n)\s{0,99}(?:=== |<h2>)Rank \d{1,6}: https?://[^\s<]{1,1024}/handler/")
_COUNTERS = "wait_counter_values"
_HEALTH = "c10d_health_check"
_RECORDERS = ("fr_trace_json", "dump_nccl_trace_json", "torchcomms_fr_trace_json")
_NOTHING = "nothing"  # where a rank did not answer
_JSON = (_COUNTERS, _HEALTH, *_RECORDERS)
_UNANSWERED = re.compile(r"^\s{0,99}(?:Error: |<p>Failed to fetch: status=)(\d{3})\b")
_MOST_TEXT = 1 << 26  # of one rank's part
_MOST_NOTES = 1 << 16


def sniff(head: Head) -> bool:
    return log_format(head) == NAME


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_log(source, options)


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._begin: LogLine | None = None  # where the open part begins
        self._handler = ""
        self._text: list[str] = []
        self._size = 0
        self._notes: list[Fields] = []
        self._tables: dict[str, list[Fields]] = {"collectives": [], "comm_groups": []}

    def read(self, line: LogLine) -> str | None:
        if match := SECTION.match(line.text):
            self._close()
            self._begin = line
            self._handler = match["handler"]
            return READ
        if self._begin is None or line.rank is None:
            is_page = self._begin is not None and line.text.lstrip().startswith("<")
            return SKIPPED if is_page else None
        if match := _UNANSWERED.match(line.text):
            self._note_line("NO_ANSWER", f"its debug server did not answer (status {match[1]})")
            self._handler = _NOTHING
            return READ
        if self._handler == _NOTHING:
            return SKIPPED  # what the connection said
        if self._handler not in _JSON:
            return None
        self._size += len(line.text)
        if self._size <= _MOST_TEXT:
            self._text.append(line.text)
        return READ

    def _close(self) -> None:
        """Read the part that ends here."""
        text = "\n".join(self._text).strip()
        is_whole = self._size <= _MOST_TEXT
        self._text = []
        self._size = 0
        if self._begin is None or not text:
            return
        try:
            if not is_whole:
                raise MalformedTrace(f"holds more than {_MOST_TEXT:,} bytes")
            self._read_json(text)
        except (ValueError, RecursionError, MalformedTrace) as error:
            words = f"{self._handler} of rank {self._begin.rank}: {error}"
            self._issues.add("broken_part", words, self._begin.offset)

    def _read_json(self, text: str) -> None:
        if self._handler in _RECORDERS:
            self._add_recorder(text)
            return
        facts = json.loads(text)
        if not isinstance(facts, dict):
            raise ValueError("is no JSON object")
        if self._handler == _HEALTH:
            ill = [str(name) for name in list_of(facts.get("unhealthy_backends"))]
            is_well = facts.get("healthy") is True and not ill
            words = "healthy" if is_well else f"unhealthy: {', '.join(ill[:16]) or 'not said what'}"
            self._note_line("HEALTH", words)
        else:
            self._note_line("WAITS", _waits_in_words(facts))

    def _add_recorder(self, text: str) -> None:
        dump = load_dump(text.encode(), self._handler, self._issues)
        entries = entries_of(dump, self._issues)
        groups = ProcessGroups(dump, entries)
        who = {"rank": self._begin.rank if self._begin else None}
        self._tables["collectives"] += [row | who for row in rows_of(entries, groups, self._issues)]
        self._tables["comm_groups"] += [row | who for row in groups.rows(dump.get("pg_status"))]

    def _note_line(self, level: str, text: str) -> None:
        begin = self._begin
        if begin is None or len(self._notes) >= _MOST_NOTES:
            return
        self._notes.append(
            {
                "source": NAME,
                "rank": begin.rank,
                "level": level,
                "text": text[:1024],
                "time_ns": begin.time_ns,
                "offset": begin.offset,
            }
        )

    def finish(self) -> LogPart:
        self._close()
        return LogPart({**self._tables, "comm_notes": self._notes})


def _waits_in_words(counters: Fields) -> str:
    """Return the waits of torch's own that a rank is in, or that it is in none."""
    waits = []
    for name, counter in counters.items():
        facts = counter if isinstance(counter, dict) else {}
        active = whole_number(facts.get("active_count")) or 0
        if active > 0:
            waits.append(f"{name.removeprefix('pytorch.wait_counter.')[:128]} ({active:,} open)")
    if waits:
        return f"in {', '.join(waits[:16])}"
    return f"in none of {pluralize_count(len(counters), 'wait')} that torch counts"


LINES = LineFormat(NAME, _MARK, _Reader)
