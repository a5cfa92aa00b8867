"""Times as logs write them: ISO dates, and glog's and c10's `E1122 12:03:04.123456` without a year.

Hosts write their own wall clock; where no time zone stands, it is read as UTC. A year that is not
written is that in which the moment lies nearest to the last full date of the log; in a log without
any, the last year in which it does not lie after the file was last written. Where neither is there,
the time is unknown.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_DATED = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
STAMP = re.compile(r"\[?[IWEF](\d{4})?(\d{1,2})(\d\d) (\d\d:\d\d:\d\d)\.(\d{1,9})\b")
_SLACK = timedelta(days=1)  # of time zones


@dataclass
class YearHint:
    """What tells the year of a time that is written without one."""

    near: date | None = None  # the last full date of the log
    until: date | None = None  # when the file was last written

    def year_of(self, month: int, day: int) -> int | None:
        """Return the year of a day; None: nothing tells it, or there is no such day."""
        reference = self.near or self.until
        if reference is None:
            return None
        years = range(max(reference.year - 8, 1), min(reference.year + 1, 9999) + 1)
        days = [
            moment for year in years if (moment := _build_day(year, month, day))
        ]  # a leap day: few
        if self.near is not None:
            near = self.near
            return min(days, key=lambda d: abs(d - near), default=date.min).year if days else None
        past = [d.year for d in days if d <= reference + _SLACK]
        return past[-1] if past else None


def parse_date(text: str) -> date | None:
    """Return the day of a full date at a text's begin."""
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None


def time_ns(text: str, hint: YearHint | None = None) -> int | None:
    """Return the ns since 1970 of a time that a text begins with; None: it cannot be told."""
    if match := _DATED.match(text):
        return _epoch_ns(match[1], match[2], match[3], match[4])
    match = STAMP.match(text)
    if match is None:
        return None
    month = int(match[2])
    day = int(match[3])
    year = int(match[1]) if match[1] else hint.year_of(month, day) if hint else None
    if year is None:
        return None
    return _epoch_ns(f"{year:04}-{month:02}-{day:02}", match[4], match[5], None)


def _epoch_ns(day: str, clock: str, fraction: str | None, zone: str | None) -> int | None:
    zone = {None: "+00:00", "Z": "+00:00"}.get(zone, zone)
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone}")
        seconds = moment.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return None
    return int(seconds) * 10**9 + int(f"{fraction or 0:0<9}"[:9])


def _build_day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None
