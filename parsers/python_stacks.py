"""Stacks of a process that hangs or died: py-spy, pystack, gdb, faulthandler, tracebacks.

Read: each thread's frames as `py-spy dump` prints them (with or without local variables, which are
not read, or with --json), those of `pystack remote` without its frames of C, the frames of C that
gdb prints by `thread apply all bt`, faulthandler's dumps (of a timeout, a signal or a fatal error,
3.8 to 3.14), and the traceback of an exception that nobody caught, also where torch put `[rank3]:`
before each line.

The rank is that before a line, or that in the file's name.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace
from htk.base.io.sources import rank_from_name, read_head
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
from htk.parsers.common.log_records import Issues, list_of, read_json

NAME = "python_stacks"

_PREFIX = rb"(?:^|\n)(?:\[rank\d{1,6}\]:[ ]?|\d{1,6}: )?"
_MARK = re.compile(
    _PREFIX + rb"(?:(?:Current t|T)hread 0x[0-9a-f]{1,16}(?: \[[^\]\n]{0,99}\])? "
    rb"\(most recent call first\):"
    rb"|Thread (?:0x)?[0-9A-Fa-f]{1,16} \([a-z+]{1,32}\)(?::|\n)"
    rb"|Thread \d{1,9} \(Thread 0x[0-9a-f]{1,16} \(LWP \d{1,9}\)"
    rb"|Fatal Python error: |Traceback (?:for thread \d{1,9} .{0,280})?\(most recent call last\):)"
)
_JSON = re.compile(rb'\s*\[\s*\{\s*"pid"\s*:\s*\d{1,9}\s*,\s*"thread_id"')
_PROCESS = re.compile(r"^(?:Process|Attaching to process) (\d{1,9})(?:: (.{0,1023}))?$")
_LOCAL_RANK = re.compile(r"--local[-_]rank[= ](\d{1,6})\b")
_SPY_THREAD = re.compile(
    r'^Thread ((?:0x)?[0-9A-Fa-f]{1,16}) \(([a-z+]{1,32})\)(?:: "(.{0,255})")?'
)
_SPY_FRAME = re.compile(r"^ {4,8}(\S.{0,255}?) \(([^()]{1,1023}?)(?::(\d{1,9}))?\)\s*$")
_PYSTACK_THREAD = re.compile(r"^Traceback for thread (\d{1,9}) (?:\((.{0,255})\) )?\[(.{0,99})\] ")
_PYSTACK_FRAME = re.compile(r'^ {4}\(Python\) File "(.{0,1023}?)", line (\d{1,9}), in (.{1,255})$')
_GDB_THREAD = re.compile(
    r'^Thread (\d{1,9}) \(Thread 0x[0-9a-f]{1,16} \(LWP \d{1,9}\)(?: "(.{0,99})")?\):'
)
_GDB_FRAME = re.compile(
    r"^#\d{1,6} +(?:0x[0-9a-f]{1,16} in )?(\S.{0,1023}?) ?\(.{0,4095}\)"
    r"(?: from (?:\S{0,1023}/)?(\S{1,255})| at (\S{1,1023}):(\d{1,9}))?$"
)
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
    return log_format(head) == NAME or _JSON.match(head.data) is not None


def parse(source: Source, options: ParseOptions) -> Parsed:
    if not _JSON.match(read_head(source).data):
        return parse_log(source, options)
    try:
        content = json.loads(read_json(source, Issues(), options.progress))
    except (ValueError, RecursionError) as error:
        raise MalformedTrace(f"{source.name}: truncated or damaged: {error}") from None
    text = "\n".join(_as_printed(content)).encode("utf8", "replace")
    return parse_log(replace(source, open=lambda: BytesIO(text), size=len(text)), options)


def _as_printed(threads: object) -> Iterator[str]:
    """Yield the lines that `py-spy dump` prints of what it writes as JSON."""
    for thread in list_of(threads):
        if not isinstance(thread, dict):
            continue
        process = thread.get("process_info")
        command = process.get("command_line") if isinstance(process, dict) else None
        yield f"Process {thread.get('pid')}: {str(command or 'python').splitlines()[0]}"
        state = ("active" if thread.get("active") else "idle") + "+gil" * bool(
            thread.get("owns_gil")
        )
        yield f'Thread {thread.get("os_thread_id") or 0} ({state}): "{thread.get("thread_name")}"'
        for frame in list_of(thread.get("frames")):
            if isinstance(frame, dict):
                file = frame.get("short_filename") or frame.get("filename")
                yield f"    {frame.get('name')} ({file}:{frame.get('line')})"


class _Stack:
    """One thread's frames while they are read."""

    def __init__(self, row: Fields, kind: str) -> None:
        self.row = row
        self.kind = kind  # spy, pystack, gdb, fault, traceback
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
            reading = self._continue_stack(stack, text, writer)
            if reading is not None:
                return reading
        if match := _PROCESS.match(text):
            local_rank = _LOCAL_RANK.search(match[2] or "")
            self._processes[writer] = (
                f"{match[1]} (local rank {local_rank[1]})" if local_rank else match[1]
            )
        elif text.startswith("Python v") and writer in self._processes:
            return SKIPPED
        elif match := _SPY_THREAD.match(text):
            self._begin(line, "spy", match[1], match[2], match[3])
        elif match := _PYSTACK_THREAD.match(text):
            state = "active+gil" if "Has the GIL" in match[3] else None
            self._begin(line, "pystack", match[1], state, match[2])
        elif match := _GDB_THREAD.match(text):
            self._begin(line, "gdb", match[1], None, match[2])
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

    def _continue_stack(
        self, stack: _Stack, text: str, writer: tuple[str, int | None]
    ) -> str | None:
        """Take a line as the next of an open stack, if it is."""
        if stack.kind == "spy":
            match = _SPY_FRAME.match(text)
            if match is not None:
                return self._add_frame(stack, match[1], match[2], match[3])
            if text.startswith("        "):  # local variables
                return SKIPPED
        elif stack.kind == "pystack" and text.startswith("    "):
            match = _PYSTACK_FRAME.match(text)
            return self._add_frame(stack, match[3], match[1], match[2]) if match else SKIPPED
        elif stack.kind == "gdb":
            if match := _GDB_FRAME.match(text):
                return self._add_frame(stack, match[1], match[2] or match[3] or "??", match[4])
        elif match := _FAULT_FRAME.match(text):
            return self._add_frame(stack, match[3], match[1], match[2])
        elif text.strip() == "<no Python frame>":
            del self._open[writer]
            return SKIPPED
        elif stack.kind == "traceback" and text.startswith("    "):
            return SKIPPED  # the source's line
        elif stack.kind == "traceback" and (match := _EXCEPTION.match(text)):
            self._add_raised(stack, match[0].strip())
            del self._open[writer]
            return READ
        del self._open[writer]
        return None

    def _add_frame(self, stack: _Stack, function: str, file: str, number: str | None) -> str:
        if len(stack.frames) < _MOST_FRAMES:
            frame = f"{function} ({file}:{number})" if number else f"{function} ({file})"
            is_outermost_first = stack.kind in ("traceback", "pystack")
            stack.frames.insert(0 if is_outermost_first else len(stack.frames), frame)
            stack.row["frames"] = stack.frames
        return READ

    def _add_raised(self, stack: _Stack, exception: str) -> None:
        if stack.frames and len(self._rows) < _MOST_STACKS:
            self._rows.append(stack.row | {"state": exception})

    def finish(self) -> LogPart:
        for row in self._rows:
            row["frames"] = "\n".join(row.get("frames", ())) or None
        return LogPart({"python_stacks": self._rows})


LINES = LineFormat(NAME, _MARK, _Reader)
