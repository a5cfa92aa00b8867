"""The lines of a text: bounded, decoded, and without what launchers put before them.

Every format whose records are lines reads them here: logs, to which launchers, containers and
schedulers put a prefix, and files of one record a line. A line is known by its byte offset.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from htk.base.core.parser import Source
from htk.base.io.decompress import Stream, open_stream
from htk.parsers.common.log_records import Issues, note_damage, report_progress
from htk.parsers.common.log_times import STAMP, YearHint, parse_date, time_ns

LONGEST_LOG_LINE = 1 << 16
LONGEST_RECORD = 1 << 26  # of one line that is JSON

_BLOCK = 1 << 20
_LINE_END = re.compile(rb"\r?\n|\r")
_MOST_PREFIXES = 6  # one line may be numbered by a launcher, a container and a scheduler


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line without what launchers put before it."""

    offset: int
    text: str
    origin: str = ""  # who wrote it, as the launcher says; torch's rank is no part of it
    rank: int | None = None  # global, where launcher or torch say so
    stamp: str = ""  # its time as written, by a launcher or by glog
    hint: YearHint | None = None  # of a time without a year

    @property
    def time_ns(self) -> int | None:
        """The time of writing, in ns on the host's wall clock; None: not recorded."""
        return time_ns(self.stamp, self.hint) if self.stamp else None


def read_lines(
    source: Source,
    issues: Issues,
    progress: Callable[[int], None] | None = None,
    *,
    longest: int = LONGEST_RECORD,
) -> Iterator[LogLine]:
    """Yield each line in bounded memory: of one that is too long, its first bytes.

    Bytes that are no UTF-8 are replaced.
    """
    hint = YearHint(until=_last_written(source))
    section: LogLine | None = None
    with source.open() as file, open_stream(file) as stream:
        for offset, data, size in _byte_lines(stream, progress, longest):
            if size > longest:
                issues.add("overlong_line", f"only its first {longest:,} bytes are read", offset)
            line = strip_prefixes(offset, data.decode("utf8", "replace"), hint)
            if line.stamp and (day := parse_date(line.stamp)):
                hint = YearHint(near=day)
            if match := SECTION.match(line.text):
                stamp = _stamp_in_name(source.file_name, hint)
                section = replace(line, rank=int(match["rank"]), stamp=stamp)
                yield section
            elif section is None:
                yield line
            else:
                yield _of_section(line, section)
                ends = section.text.lstrip()[0] == "<" and "</pre>" in line.text
                section = None if ends else section
        note_damage(stream, issues)


# The head of one rank's part in what torch's debug server dumps, and in its pages.
SECTION = re.compile(
    r"^\s{0,99}(?:=== |<h2>)Rank (?P<rank>\d{1,6}): https?://[^\s<]{1,1024}/handler/"
    r"(?P<handler>\w{1,99})[^\s<]{0,1024}(?: ===|</h2>)\s{0,99}$"
)
_PAGE_MARK = re.compile(r"^\s{0,99}<pre>|</pre>\s{0,99}$")
_TIME_IN_NAME = re.compile(r"_(?:(\d{4})(\d\d)(\d\d)_)?(\d\d)(\d\d)(\d\d)\.txt$")


def _of_section(line: LogLine, section: LogLine) -> LogLine:
    """Return a line of one rank's part, with the part's rank and time where it has none itself."""
    text = _PAGE_MARK.sub("", line.text) if section.text.lstrip()[0] == "<" else line.text
    rank = section.rank if line.rank is None else line.rank
    return replace(line, text=text, rank=rank, stamp=line.stamp or section.stamp)


def _stamp_in_name(name: str, hint: YearHint) -> str:
    """Return the time that a file's name ends with; without a day it is that of the last change."""
    match = _TIME_IN_NAME.search(name)
    if match is None:
        return ""
    day = "-".join(match.groups()[:3]) if match[1] else str(hint.until or "")
    return f"{day} {':'.join(match.groups()[3:])}" if day else ""


def _byte_lines(
    stream: Stream, progress: Callable[[int], None] | None, longest: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield where each line begins, its first bytes, and how many it has.

    A progress bar begins its line anew: each is a line, unless it is empty.
    """
    offset = 0
    size = 0
    begin = b""
    may_be_blank = True
    while block := stream.read(_BLOCK):
        report_progress(progress, stream)
        start = 0
        for end in _LINE_END.finditer(block):
            begin += block[start : min(end.start(), start + longest - len(begin))]
            size += end.start() - start
            ends = end[0] != b"\r"
            if size or (ends and may_be_blank):
                yield offset, begin, size
            offset = offset + size + len(end[0])
            size = 0
            begin = b""
            may_be_blank = ends
            start = end.end()
        begin += block[start : start + longest - len(begin)]
        size += len(block) - start
    if size:
        yield offset, begin, size


def _last_written(source: Source) -> date | None:
    if source.path is None:
        return None
    try:
        return datetime.fromtimestamp(source.path.stat().st_mtime, UTC).date()
    except (OSError, ValueError, OverflowError):
        return None


_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}[mK]")
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? "
    r"(?:std(?:out|err) [FP] )?"
)
# Launchers that say the rank of the whole job, and those that only say which process it is.
_RANKED = re.compile(
    # mpirun --tag-output, --timestamp-output, --output tag-detailed
    r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?"
    r"\[[\w.@-]{1,99},(\d{1,6})\](?:\[[\w.-]{1,64}:\d{1,9}\])?<std(?:out|err)>: ?"
    r"|\[rank(\d{1,6})\]: ?"  # torch
    r"|\(\w{1,99}\[rank=(\d{1,6})\] pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ?"  # Ray, of named workers
)
_TAGGED = re.compile(
    r"\(\w{1,99}(?:\([\w=, ]{1,99}\))? pid=\d{1,9}(?:, ip=[\w.:]{1,64})?\) ?"  # Ray
    r"|\[pod/[^\]\s]{1,255}\] "  # kubectl logs --prefix
    r"|\[[a-z_]{1,32}\d{1,6}\]: ?"  # torchrun --tee: role and local rank
    r"|\[\d{1,6}\] (?=\S| {2})"  # hydra
    r"|[\w.-]{1,64} {1,16}\| "  # docker compose
    r"|(?=[\w.-]{0,63}\d)[\w.-]{1,64}: (?=.)"  # srun --label, pdsh
    r"| {1,5}\d{1,6}: (?=.)"  # srun --label of more than ten tasks
    # journalctl, in its short formats: when, the host, and the unit's process or the kernel
    r"|(?:\w{3} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]{1,5} "
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})? |\d{10}\.\d{6} )?"
    r"[\w.-]{1,64} (?:[\w@.:\\-]{1,128}\[\d{1,9}\]|kernel): ?"
    # stern: a pod, maybe behind its namespace, and its container
    r"|(?:[a-z0-9-]{1,63} )?(?=[a-z])[a-z0-9.-]{1,253}-(?:\d{1,5}|[b-df-hj-np-tv-xz2-9]{5})"
    r" [a-z][a-z0-9-]{0,62} (?=.)"
)


def without_prefixes(data: bytes) -> bytes:
    """Return the lines of a text without what was put before them."""
    lines = (strip_prefixes(0, line.decode("utf8", "replace")) for line in _LINE_END.split(data))
    return "\n".join(line.text for line in lines).encode()


def json_part(data: bytes) -> bytes:
    """Return a text from the line on that begins an object of JSON, behind lines of others or not,
    and without what launchers put before its lines."""
    if b"\n{" not in b"\n" + data.lstrip():
        data = without_prefixes(data)
    data = data.lstrip()
    return data[max((b"\n" + data).find(b"\n{"), 0) :]


def strip_prefixes(offset: int, text: str, hint: YearHint | None = None) -> LogLine:
    """Take off what launchers, containers and schedulers put before a line."""
    if "\x1b" in text:
        text = _COLOUR.sub("", text)
    origin = ""
    rank = None
    begin = 0
    stamp = ""
    for _ in range(_MOST_PREFIXES):
        if match := _TIME.match(text, begin):
            begin = match.end()
            stamp = match[0]
        elif match := _RANKED.match(text, begin):
            rank = int(next(group for group in match.groups() if group))
            origin = origin + ("" if match[2] else match[0].rstrip())
            begin = match.end()
        elif match := _TAGGED.match(text, begin):
            origin = origin + match[0].rstrip()
            begin = match.end()
        else:
            break
    if match := STAMP.match(text, begin):  # the program's own is nearer than a collector's
        stamp = match[0] if match[1] or not parse_date(stamp) else stamp
    return LogLine(offset, text[begin:] if begin else text, origin, rank, stamp, hint)
