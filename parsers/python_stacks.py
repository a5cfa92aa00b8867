"""Python stacks of a process that hangs or died: `py-spy dump`, faulthandler, and tracebacks.

Read: each thread's frames as `py-spy dump` prints them (with or without local variables, which are
not read), faulthandler's dumps (of a timeout, a signal or a fatal error, 3.8 to 3.14), and the
traceback of an exception that nobody caught, also where torch put `[rank3]:` before each line.

The rank is that before a line, or that in the file's name.
"""

import re

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.io.sources import rank_from_name
from htk.base.mappings import Fields
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

NAME = "python_stacks"

_PREFIX = rb"(?:^|\n)(?:\[rank\d{1,6}\]:[ ]?|\d{1,6}: )?"
_MARK = re.compile(
    _PREFIX + rb"(?:(?:Current t|T)hread 0x[0-9a-f]{1,16}(?: \[[^\]\n]{0,99}\])? "
    rb"\(most recent call first\):"
    rb"|Thread (?:0x)?[0-9A-Fa-f]{1,16} \([a-z+]{1,32}\)(?::|\n)"
    rb"|Fatal Python error: |Traceback \(most recent call last\):)"
)
_PROCESS = re.compile(r"^Process (\d{1,9}): (.{0,1023})$")
_SPY_THREAD = re.compile(
    r'^Thread ((?:0x)?[0-9A-Fa-f]{1,16}) \(([a-z+]{1,32})\)(?:: "(.{0,255})")?'
)
_SPY_FRAME = re.compile(r"^ {4,8}(\S.{0,255}?) \(([^()]{1,1023}?)(?::(\d{1,9}))?\)\s*$")
_FAULT_THREAD = re.compile(
    r"^(Current thread|Thread) (0x[0-9a-f]{1,16})(?: \[(.{0,99})\])? \(most recent call first\):"
)
_FAULT_FRAME = re.compile(r'^ {2}File "(.{0,1023}?)", line (\d{1,9}|\?\?\?)(?:,)? in (.{1,255})$')
_FATAL = re.compile(r"^Fatal Python error: (.{0,255})|^Timeout \([\d:.]{1,32}\)!")
_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]{0,255})(?:: (.{0,1023}))?\s*$")
_MOST_FRAMES = 1000
_MOST_STACKS = 1 << 16


def sniff(head: Head) -> bool:
    return log_format(head) == NAME


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_log(source, options)


class _Stack:
    """One thread's frames while they are read."""

    def __init__(self, row: Fields, kind: str) -> None:
        self.row = row
        self.kind = kind  # spy, fault, traceback
        self.frames: list[str] = []


class _Reader:
    """Keeps one open stack for each writer: launchers mix the lines of several."""

    def __init__(self, file_name: str, _issues: Issues) -> None:
        self._rank = rank_from_name(file_name)
        self._open: dict[tuple[str, int | None], _Stack] = {}
        self._processes: dict[tuple[str, int | None], str] = {}
        self._fatal: dict[tuple[str, int | None], str] = {}
        self._rows: list[Fields] = []

    def read(self, line: LogLine) -> str | None:
        writer = (line.origin, line.rank)
        text = line.text
        stack = self._open.get(writer)
        if stack is not None:
            reading = self._continue(stack, text, writer)
            if reading is not None:
                return reading
        if match := _PROCESS.match(text):
            self._processes[writer] = match[1]
        elif text.startswith("Python v") and writer in self._processes:
            return SKIPPED
        elif match := _SPY_THREAD.match(text):
            self._begin(line, "spy", match[1], match[2], match[3])
        elif match := _FAULT_THREAD.match(text):
            state = "current" if match[1] == "Current thread" else None
            fatal = self._fatal.get(writer)
            self._begin(line, "fault", match[2], fatal if state and fatal else state, match[3])
        elif match := _FATAL.match(text):
            self._fatal[writer] = match[1] or match[0]
        elif text.startswith(_TRACEBACK):
            self._begin(line, "traceback", None, None, None)
        else:
            return None
        return READ

    def _begin(
        self, line: LogLine, kind: str, thread: str | None, state: str | None, name: str | None
    ) -> None:
        row = {
            "source": NAME if kind != "traceback" else "traceback",
            "rank": line.rank if line.rank is not None else self._rank,
            "process": self._processes.get((line.origin, line.rank)),
            "thread": thread,
            "thread_name": name,
            "state": state,
            "offset": line.offset,
            "time_ns": line.time_ns,
        }
        self._open[line.origin, line.rank] = _Stack(row, kind)
        if kind != "traceback" and len(self._rows) < _MOST_STACKS:
            self._rows.append(row)

    def _continue(self, stack: _Stack, text: str, writer: tuple[str, int | None]) -> str | None:
        """Take a line as the next of an open stack, if it is."""
        if stack.kind == "spy":
            match = _SPY_FRAME.match(text)
            if match is not None:
                return self._frame(stack, match[1], match[2], match[3])
            if text.startswith("        "):  # local variables
                return SKIPPED
        elif match := _FAULT_FRAME.match(text):
            return self._frame(stack, match[3], match[1], match[2])
        elif text.strip() == "<no Python frame>":
            del self._open[writer]
            return SKIPPED
        elif stack.kind == "traceback" and text.startswith("    "):
            return SKIPPED  # the source's line
        elif stack.kind == "traceback" and (match := _EXCEPTION.match(text)):
            self._raised(stack, match[0].strip())
            del self._open[writer]
            return READ
        del self._open[writer]
        return None

    def _frame(self, stack: _Stack, function: str, file: str, number: str | None) -> str:
        if len(stack.frames) < _MOST_FRAMES:
            frame = f"{function} ({file}:{number})" if number else f"{function} ({file})"
            stack.frames.insert(0 if stack.kind == "traceback" else len(stack.frames), frame)
            stack.row["frames"] = stack.frames
        return READ

    def _raised(self, stack: _Stack, exception: str) -> None:
        if stack.frames and len(self._rows) < _MOST_STACKS:
            self._rows.append(stack.row | {"state": exception})

    def finish(self) -> LogPart:
        for row in self._rows:
            row["frames"] = "\n".join(row.get("frames", ())) or None
        return LogPart({"python_stacks": self._rows})


LINES = LineFormat(NAME, _MARK, _Reader)
