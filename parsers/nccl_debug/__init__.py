"""NCCL_DEBUG logs, NCCL's and RCCL's: communicators, calls, transports, tuning, warnings.

Text of any number of processes in one file, with whatever a launcher or scheduler puts before each
line; lines glue together and tear, so a line is taken apart at every `host:pid:tid [dev] NCCL`.
Read: INFO lines of INIT, COLL, TUNING, P2P, NET and the tuning table (2.4 to 2.30), of GRAPH
those of rings and trees, WARN lines and the trail of errors after them. Not read: TRACE and CALL
lines.

Calls are logged when they are enqueued. They have a time where NCCL_DEBUG_TIMESTAMP_LEVELS asks for
it: that of the host's wall clock, without a time zone, read as UTC. Otherwise only their order in a
thread is known. opCount rises once for each launched plan, so it is no sequence number. A
communicator that was split from another logs no hash; parent, split and color tell it instead.
"""

import json
import re
from collections.abc import Iterator

from htk.base.core.parser import Head, Parsed, ParseOptions, Source
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
from htk.parsers.common.log_times import time_ns
from htk.parsers.nccl_debug.log import NcclLog
from htk.parsers.nccl_debug.message import NAME, Message

_LEVEL = r"NCCL (?P<level>INFO|WARN|CALL|TRACE) "
_PREFIX = re.compile(
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)\] )?(?<![^\s:])"
    r"(?P<host>[^\s:]{1,255}):(?P<pid>\d{1,9}):(?P<tid>\d{1,9}) (?:\[(?P<dev>\d{1,4})\] )?"
    rf"(?:(?P<site>\S{{1,255}}:\d{{1,6}})(?: \([^)]{{0,255}}\))? )?{_LEVEL}"
)
_BARE = re.compile(  # as some builds and log collectors leave it: no host, process and thread
    r"(?:\[(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?)\] )?"
    r"(?:\[(?P<dev>\d{1,4})\] )?(?:(?P<site>[^\s:]{1,255}:\d{1,6})(?: \([^)]{0,255}\))? )?" + _LEVEL
)
_MARK = re.compile(
    rb"(?:(?<![^\s:])[^\s:]{1,255}:\d{1,9}:\d{1,9} (?:\[\d{1,4}\] )?|(?:^|\n)(?:\[\d{1,4}\] )?)"
    rb"(?:[^\s:]{1,255}:\d{1,6}(?: \([^)]{0,255}\))? )?NCCL (?:INFO|WARN|CALL|TRACE) "
)
_VERSION = re.compile(r"\s{0,9}[NR]CCL version[ :]{1,9}(\S{1,64})")
_LONGEST_MESSAGE = 2048  # NCCL ends its own at 1,024


def sniff(head: Head) -> bool:
    return log_format(head) == NAME


def parse(source: Source, options: ParseOptions) -> Parsed:
    return parse_log(source, options)


class _Reader:
    """Takes a line apart into the messages of all processes that wrote to it."""

    def __init__(self, _file: str, issues: Issues) -> None:
        self._log = NcclLog(issues)

    def read(self, line: LogLine) -> str | None:
        if "CCL" not in line.text:
            return None
        readings = [self._log.read(message) for message in self._list_messages(line)]
        if readings:
            return READ if READ in readings else SKIPPED
        if version := _VERSION.match(line.text):
            self._log.version = version[1]
            return READ
        return None

    def _list_messages(self, line: LogLine) -> Iterator[Message]:
        """The messages of a line: several where processes wrote at once."""
        starts = list(_PREFIX.finditer(line.text))
        if not starts:
            if match := _BARE.match(line.text):
                yield self._parse_message(match, line, line.text[match.end() :], None, line.origin)
            return
        for k, match in enumerate(starts):
            host = self._log.host_of(match["host"], first=k == 0)
            end = starts[k + 1].start() if k + 1 < len(starts) else len(line.text)
            if k + 1 < len(starts):  # the next host's name may have the end of this text before it
                glued = starts[k + 1]["host"]
                end += len(glued) - len(self._log.host_of(glued, first=False))
            text = line.text[match.end() : end]
            yield self._parse_message(match, line, text, host, match["pid"], match["tid"])

    def _parse_message(
        self,
        match: re.Match[str],
        line: LogLine,
        text: str,
        host: str | None,
        process: str,
        thread: str = "",
    ) -> Message:
        device = int(match["dev"]) if match["dev"] else None
        time = time_ns(match["time"] or "")
        level = match["level"]
        text = text[:_LONGEST_MESSAGE]
        return Message(host, process, thread, device, level, text, line.offset, time, line.time_ns)

    def finish(self) -> LogPart:
        log = self._log
        log.finish()
        hosts = sorted(log.hosts)
        versions = json.dumps({"nccl_version": log.version}) if log.version else None
        host = hosts[0] if len(hosts) == 1 else None
        return LogPart(log.tables, {"host": host, "versions": versions, "events": log.messages})


LINES = LineFormat(NAME, _MARK, _Reader)
