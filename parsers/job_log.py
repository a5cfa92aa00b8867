"""Output of a job whose first lines are of no known format: what it says when it dies comes last.

Asked last, of text alone. Its lines are those of NCCL, the watchdog, Python's stacks, RAS and
nccl-tests; a text that has none is no job's log.
"""

import re

from htk.base.core.parser import HEAD_BYTES, Head, Parsed, ParseOptions, Source
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.parsers.common.line_formats import log_format, parse_log

NAME = "job_log"

_NAMES = re.compile(
    r"(?:^|[\\/!])[^.\\/!]{1,255}$|\.(?:log|out|err|txt|stdout|stderr|[oe]\d{1,9})"
    r"(?:\.(?:gz|zst|xz|bz2))?$"
)


def sniff(head: Head) -> bool:
    data = head.data
    start = data.lstrip()[:1]
    if (
        len(data) < HEAD_BYTES
        or not _NAMES.search(head.name)
        or start in (b"{", b"[", b"<")
        or b"\x00" in data
    ):
        return False
    return log_format(head) is None and b"\n" in data


def parse(source: Source, options: ParseOptions) -> Parsed:
    try:
        return parse_log(source, options)
    except MalformedTrace as error:
        raise UnknownFormat(str(error)) from None
