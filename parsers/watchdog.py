"""Lines of PyTorch's watchdog: which call of which rank timed out, and how far its group had come.

ProcessGroupNCCL writes them to the log when a collective takes longer than its timeout, with or
without the flight recorder (c10d from 1.13 to 2.13, and backends that copied it). Read: the call
that timed out (`WorkNCCL(SeqNum=…, OpType=…, NumelIn=…, …) ran for …`), the group's counters (`last
enqueued work: …, last completed work: …`, whichever words are around them), the stack of the failed
collective, and watchdogs that got stuck themselves.

Its times (`E1122 12:03:04.123456`) have no year: `common/log_times.py` says how that is told. The
watchdog looks about once a second, so that a call ended that much before, and began as much before.

`[rank3]:` before a line is the global rank; the rank in the text is that in the group. Which ranks
belong to a group is not said.
"""

import re
from typing import Any

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.mappings import Fields
from htk.base.names.collectives import collective_type
from htk.parsers.common.line_formats import (
    READ,
    SKIPPED,
    LineFormat,
    LogPart,
    log_format,
    parse_log,
)
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues

NAME = "watchdog"

_MARK = re.compile(
    rb"Watchdog caught collective operation timeout: Work|last enqueued (?:\w{1,9} )?work: ?-?\d"
    rb"|ProcessGroup\w{1,9}'s watchdog got stuck"
    rb"|Process ?Group\w{1,9}\.cpp:\d{1,6}\] \[(?:PG|Rank) "
)
_RANK = re.compile(r"\[rank(\d{1,6})\]:")
_WORK = re.compile(
    r"\bWork(\w{1,9})\((?:SeqNum|seqNum)=(\d{1,19}), OpType=(\w{1,64})"
    r"(?:, (?:TensorShape|NumelIn)=(\[[\d, ]{0,255}\]|\d{1,19}))?"
    r"(?:, NumelOut=(\d{1,19}))?, Timeout\(ms\)=(\d{1,19})\)"
    r"(?: ran for (\d{1,12}) milliseconds)?"
)
_GROUP = re.compile(
    r"\[PG (?:ID )?(\d{1,9})(?: PG GUID ([^\s()\]]{1,255}))?(?: ?\(([^)\]]{0,255})\))? "
    r"Rank (\d{1,9})\]"
)
_OWN_RANK = re.compile(r"\[Rank (\d{1,9})\]")
_FAILED = re.compile(r"watchdog at work(?: sequence id)?: (\d{1,19})|at \w{1,9} work: (\d{1,19})")
_COUNTERS = re.compile(
    r"[Ll]ast enqueued (?:\w{1,9} )?work: ?(-?\d{1,19}),"
    r"(?: last started (?:\w{1,9} )?work: ?(-?\d{1,19}),)?"
    r" last completed (?:\w{1,9} )?work: ?(-?\d{1,19})"
)
_STUCK = re.compile(r"watchdog got stuck for \d{1,9} ?seconds|Heartbeat monitor timed out!")
_STACK = "Stack trace of the failed collective:"
_FRAME = re.compile(r"^#\d{1,4} (.{1,255}?) from (\S.{0,1023}?):(\d{1,9})\s*$")
_MOST_FRAMES = 1000
_DEFAULT = "default_pg"
_MOST_CALLS = 1 << 16


def sniff(head: Head) -> bool:
    return log_format(head) == NAME


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_log(source, options)


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._calls: dict[tuple[Any, ...], Fields] = {}  # by rank, number and what it was
        self._states: dict[tuple[Any, ...], Fields] = {}  # by rank and group
        self._notes: list[Fields] = []
        self._stacks: dict[str, tuple[Fields, list[str]]] = {}

    def read(self, line: LogLine) -> str | None:
        text = line.text
        if line.origin in self._stacks and self._add_frame(text, line.origin):
            return READ
        if "ork" not in text and "atchdog" not in text and ".cpp:" not in text:
            return None
        match = _RANK.search(text) if "[rank" in text else None
        rank = int(match[1]) if match else line.rank
        reading = None
        if work := _WORK.search(text):
            self._timed_out(work, text, rank, line)
            reading = READ
        if counters := _COUNTERS.search(text):
            self._read_counted(counters, text, rank, line)
            reading = READ
        if reading is None and _STACK in text and self._calls:
            self._stacks[line.origin] = (self._last_of(rank), [])
            reading = READ
        if reading is None and _STUCK.search(text):
            self._add_note(text, rank, line)
            reading = READ
        return reading or (SKIPPED if _is_plain_line(text) else None)

    def _timed_out(self, work: re.Match[str], text: str, rank: int | None, line: LogLine) -> None:
        own = _OWN_RANK.search(text)
        within = int(own[1]) if own else None
        group = _GROUP.search(text)
        if rank is None and group is not None and _is_default(group):
            rank = within
        key = (rank, within, work[2], work[3], work[4])
        elements_in = int(work[4]) if work[4] and work[4][0] != "[" else None
        name = work[3].lower()
        call = {
            "source": NAME,
            "rank": rank,
            "comm_rank": within,
            "seq": int(work[2]),
            "seq_kind": "p2p" if name in ("send", "recv") else "collective",
            "type": collective_type(name),
            "raw_name": work[3],
            "library": work[1].lower(),
            "in_elements": elements_in,
            "in_shapes": work[4].replace(" ", "") if work[4] and elements_in is None else None,
            "out_elements": int(work[5]) if work[5] else None,
            "timeout_ns": int(work[6]) * 10**6,
            "end_ns": line.time_ns,
            "enqueue_ns": _find_enqueued(line.time_ns, work[7]),
            "timing": "watchdog",
            "state": "timed_out",
        }
        if key in self._calls or len(self._calls) < _MOST_CALLS:
            kept = self._calls.setdefault(key, call)
            kept |= {k: v for k, v in call.items() if kept[k] is None}  # the first time counts

    def _read_counted(
        self, counters: re.Match[str], text: str, rank: int | None, line: LogLine
    ) -> None:
        group = _GROUP.search(text)
        own = _OWN_RANK.search(text)
        within = int(group[4]) if group else int(own[1]) if own else None
        description = group[3] if group else None
        name = (group[2] or group[1]) if group else None
        if rank is None and group is not None and _is_default(group):
            rank = within
        enqueued, started, completed = (int(n) if n else None for n in counters.groups())
        if enqueued is not None and completed is not None and completed > max(enqueued, 0):
            self._issues.add(
                "contradictory_counters",
                f"completed {completed} of {enqueued} enqueued: not used",
                line.offset,
            )
            enqueued = started = completed = None
        who = {"rank": rank, "group": name, "group_desc": description or None}
        self._states[rank, within, name] = {
            "source": NAME,
            **who,
            "last_enqueued": enqueued,
            "last_started": started,
            "last_completed": completed,
        }
        if failed := _FAILED.search(text):
            self._name_group(int(failed[1] or failed[2]), rank, within, who)

    def _name_group(self, seq: int, rank: int | None, within: int | None, who: Fields) -> None:
        """Note the group of the call that timed out last: its own line does not say."""
        for call in reversed(self._calls.values()):
            same = call["rank"] == rank if rank is not None else call["comm_rank"] == within
            if call["seq"] == seq and same and call.get("group") in (None, who["group"]):
                call |= {k: v for k, v in who.items() if v is not None}
                return

    def _last_of(self, rank: int | None) -> Fields:
        calls = reversed(self._calls.values())
        return next((c for c in calls if c["rank"] == rank), [*self._calls.values()][-1])

    def _add_frame(self, text: str, origin: str) -> bool:
        call, frames = self._stacks[origin]
        match = _FRAME.match(text)
        if match is None or len(frames) >= _MOST_FRAMES:
            del self._stacks[origin]
            return False
        frames.append(f"{match[1]} ({match[2]}:{match[3]})")
        call["frames"] = "\n".join(frames)
        return True

    def _add_note(self, text: str, rank: int | None, line: LogLine) -> None:
        group = _GROUP.search(text)
        self._notes.append(
            {
                "source": NAME,
                "rank": rank if rank is not None or group is None else int(group[4]),
                "level": "ERROR",
                "text": text[:1024],
                "offset": line.offset,
                "time_ns": line.time_ns,
            }
        )

    def finish(self) -> LogPart:
        tables = {
            "collectives": self._place_calls(),
            "comm_groups": list(self._states.values()),
            "comm_notes": self._notes,
        }
        return LogPart(tables)

    def _place_calls(self) -> list[Fields]:
        """Return the calls, each once: an exception repeats its text without the rank before it.

        Where no line has one before it and no group is told, the text's rank is the global one.
        """
        ranked = [c for c in self._calls.values() if c["rank"] is not None]
        repeatable = {_said_again(c) for c in ranked}
        others = [
            c
            for c in self._calls.values()
            if c["rank"] is None and _said_again(c) not in repeatable
        ]
        for call in others:
            if not ranked and call.get("group") is None:
                call |= {"rank": call["comm_rank"], "inferred_columns": "rank"}
        return [*ranked, *others]


def _find_enqueued(ended_ns: int | None, ran_ms: str | None) -> int | None:
    """Return when a call was enqueued that the watchdog ended, in ns: `ran_ms` counts from then."""
    return None if ended_ns is None or ran_ms is None else ended_ns - int(ran_ms) * 10**6


def _said_again(call: Fields) -> tuple[Any, ...]:
    return call["comm_rank"], call["seq"], call["raw_name"], call["in_elements"]


def _is_default(group: re.Match[str]) -> bool:
    """Return whether it is the group of all ranks: those in it are those of the job."""
    name = group[2] or group[1]
    description = group[3]
    return description == _DEFAULT or (name == "0" and not description)


def _is_plain_line(text: str) -> bool:
    """Return whether it is a line of c10d's that says nothing more."""
    return "ProcessGroup" in text and ".cpp:" in text


LINES = LineFormat(NAME, _MARK, _Reader)
