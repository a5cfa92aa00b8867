"""The ways in which jobs end, among the ordinary lines of their logs; and logs of no known head.

Read: the kernel's and Slurm's out-of-memory killer, exit codes as torchrun, srun and mpirun print
them, the NVIDIA driver's Xid, jobs that the scheduler cancelled, and c10d's and NCCL's words for a
connection that closed, also where no traceback and no `NCCL WARN` stands before them.

What a job says when it dies comes last. A text whose first lines are of no known format is
therefore read too, as the last of all formats; one without any known line is no job's log.
"""

import re

from htk.base.core.parser import HEAD_BYTES, Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.base.mappings import Fields
from htk.parsers.common.line_formats import (
    READ,
    LineFormat,
    LogPart,
    begins_as_json,
    log_format,
    parse_log,
)
from htk.parsers.common.log_lines import LogLine
from htk.parsers.common.log_records import Issues

NAME = "job_log"

_NAMES = re.compile(
    r"(?:^|[\\/!])[^.\\/!]{1,255}$|\.(?:log|out|err|txt|stdout|stderr|[oe]\d{1,9})"
    r"(?:\.(?:gz|zst|xz|bz2))?$"
)
_DEATHS = (
    r"Detected \d{1,9} oom[_-]kill event|\boom-kill:|[Oo]ut of memory: Killed process"
    r"|\bOOMKilled\b|Error: CUDA error: |OutOfMemoryError: |\] Signal: [A-Z][a-z ]{1,32}\(\d{1,3}\)"
    r"|failed \(exitcode: -?\d{1,9}\) local_rank: \d|NVRM: Xid \(|GPU has fallen off the bus"
    r"|srun: error: \S{1,255}: tasks? [\d,-]{1,255}: |exited on signal \d{1,3}"
    r"|DUE TO (?:TIME LIMIT|NODE FAILURE|PREEMPTION|NODE FAIL)"
    r"|remote process exited or there was a network error|closed by remote peer"
    r"|Dist(?:Backend|Network|Store)Error: "
)
_EXIT = r"\s{1,9}(?:exitcode {1,9}: -?\d{1,9} \(pid: (\d{1,9})\)|Exit code: {1,9}-?\d{1,9})\s*?"
_MARK = re.compile(rf"{_DEATHS}|(?:^|\n){_EXIT}\n".encode())
_DEATH = re.compile(_DEATHS)
_WORDS = (
    "oom",
    "OOM",
    "memory",
    "xit",
    "Xid",
    "GPU",
    "srun",
    "DUE TO",
    "remote p",
    "Error: ",
    "Signal: ",
)
_PROCESS = re.compile(
    r"\(pid: (\d{1,9})\)|Killed process (\d{1,9})|with PID (\d{1,9})|pid=(\d{1,9})"
    r"|:(\d{1,9})\] Signal: "
)
_MPI_RANK = re.compile(r"process rank (\d{1,9}) with PID")
_HOST = re.compile(
    r"srun: error: (\S{1,255}?): task|on node (\S{1,255}?) exited| (\S{1,255}) kernel:"
    r"|\[(\S{1,255}):\d{1,9}\] Signal: "
)
# Of torchrun's and mpirun's last report, a fact a line: the rank, then how its process ended.
_REPORTED_RANK = re.compile(
    r"^\s{1,9}(?:rank {1,9}: (\d{1,9}) \(local_rank: \d{1,9}\)"
    r"|Process name: \[.{1,99},(\d{1,9})\])\s*$"
)
_REPORTED_EXIT = re.compile(f"^{_EXIT}$")
_MOST_NOTES = 1 << 14
_LONGEST_LINE = 4096


def sniff(head: Head) -> bool:
    data = head.data
    is_other = begins_as_json(data) or data.lstrip()[:1] in (b"{", b"<") or b"\x00" in data
    if not _NAMES.search(head.name) or is_other:
        return False
    shown = log_format(head)
    return shown == NAME or (shown is None and len(data) >= HEAD_BYTES and b"\n" in data)


def parse(source: Source, options: ParseOptions) -> Parsed:
    try:
        return parse_log(source, options)
    except MalformedTrace as error:
        raise UnknownFormat(str(error)) from None


class _Reader:
    def __init__(self, _file: str, issues: Issues) -> None:
        self._issues = issues
        self._notes: list[Fields] = []
        self._rank_of_process: dict[str, int] = {}
        self._reported: dict[str, int] = {}  # the rank that torchrun reports of, by writer

    def read(self, line: LogLine) -> str | None:
        text = line.text[:_LONGEST_LINE]
        if match := _REPORTED_RANK.match(text):
            self._reported[line.origin] = int(match[1] or match[2])
            return READ
        if match := _REPORTED_EXIT.match(text):
            rank = self._reported.pop(line.origin, None)
            if rank is not None:
                self._rank_of_process[match[1]] = rank
            self._note_line(line, text.strip(), rank)
            return READ
        if any(word in text for word in _WORDS) and _DEATH.search(text):
            match = _MPI_RANK.search(text)
            self._note_line(line, text.strip(), int(match[1]) if match else line.rank)
            return READ
        return None

    def _note_line(self, line: LogLine, text: str, rank: int | None) -> None:
        if len(self._notes) == _MOST_NOTES:
            self._issues.add("too_many_notes", f"only the first {_MOST_NOTES:,} are read")
        if len(self._notes) >= _MOST_NOTES:
            return
        self._notes.append(
            {
                "source": NAME,
                "rank": rank,
                "level": "DIED",
                "text": text[:1024],
                "host": _first_group(_HOST, text),
                "process": _first_group(_PROCESS, text),
                "offset": line.offset,
                "time_ns": line.time_ns,
            }
        )

    def finish(self) -> LogPart:
        for note in self._notes:
            if note["rank"] is None:
                note["rank"] = self._rank_of_process.get(note["process"])
        return LogPart({"comm_notes": self._notes})


def _first_group(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return next((group for group in match.groups() if group), None) if match else None


LINES = LineFormat(NAME, _MARK, _Reader)
