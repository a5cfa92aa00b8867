"""Times of logs, against Python's own reading of the same moment written in full."""

import os
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.base.core.parser import ParseOptions
from htk.base.io.sources import resolve_inputs
from htk.parsers import nccl_debug, watchdog
from htk.parsers.common.log_lines import strip_prefixes
from htk.parsers.common.log_times import YearHint, time_ns

MOMENTS = st.datetimes(datetime(1995, 1, 1), datetime(2090, 12, 31))


def exact(moment: datetime, fraction: str = "") -> int:
    whole = moment.replace(microsecond=0, tzinfo=moment.tzinfo or UTC)
    return int(whole.timestamp()) * 10**9 + int(f"{fraction or 0:0<9}")


@given(MOMENTS, st.integers(0, 999_999_999), st.integers(1, 9), st.booleans())
def test_a_stamp_without_a_year_is_read_by_a_near_full_date(
    moment: datetime, nanoseconds: int, digits: int, padded: bool
) -> None:
    """glog pads the month; c10 may leave its zero out."""
    fraction = f"{nanoseconds:09}"[:digits]
    month = f"{moment.month:02}" if padded else f"{moment.month}"
    text = f"E{month}{moment.day:02} {moment:%H:%M:%S}.{fraction} a.cpp:1] x"
    leap = (moment.month, moment.day) == (2, 29)
    for days in (-150, 0, 150):
        near = (moment + timedelta(days=0 if leap else days)).date()
        assert time_ns(text, YearHint(near=near)) == exact(moment, fraction)
        assert time_ns("[" + text, YearHint(near=near)) == exact(moment, fraction)


@given(MOMENTS, st.integers(0, 360))
def test_a_file_was_written_after_its_lines(moment: datetime, later: int) -> None:
    text = f"[I{moment:%m%d %H:%M:%S}.000001 x.cpp:9] y"
    until = (moment + timedelta(days=later)).date()
    if (moment.month, moment.day) != (2, 29):
        assert time_ns(text, YearHint(until=until)) == exact(moment, "000001")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-11-22T12:03:04.5Z x", datetime(2025, 11, 22, 12, 3, 4, tzinfo=UTC)),
        ("2025-11-22 12:03:04,5 x", datetime(2025, 11, 22, 12, 3, 4, tzinfo=UTC)),
        ("2025-11-22T12:03:04.5+02:00 x", datetime(2025, 11, 22, 10, 3, 4, tzinfo=UTC)),
        ("2025-11-22T12:03:04.5-0330 x", datetime(2025, 11, 22, 15, 33, 4, tzinfo=UTC)),
        ("E20251122 12:03:04.5 77 x", datetime(2025, 11, 22, 12, 3, 4, tzinfo=UTC)),
    ],
)
def test_full_dates_need_no_hint(text: str, moment: datetime) -> None:
    assert time_ns(text) == exact(moment, "5")


@pytest.mark.parametrize(
    "text",
    ["E1122 12:03:04.5 x", "", "E1322 12:03:04.5", "E1131 12:03:04.5", "E1122 25:03:04.5",
     "2025-13-22 12:03:04 x", "2025-11-22 12:61:04 x", "Every 1122 12:03:04.5",
     "0000-00-00 00:00:00"],
)  # fmt: skip
def test_what_is_no_time_or_has_no_year_is_unknown(text: str) -> None:
    hint = None if text.startswith("E1122 12") else YearHint(near=date(2025, 1, 1))
    assert time_ns(text, hint) is None


@given(st.text(max_size=60), st.dates())
def test_any_text_is_a_time_or_none(text: str, day: date) -> None:
    for begin in ("", "E0229 00:00:00.", "2024-02-30 ", "9999-12-31 23:59:59-23:59"):
        for hint in (None, YearHint(near=day), YearHint(until=day)):
            assert isinstance(time_ns(begin + text, hint), int | None)
            strip_prefixes(0, begin + text, hint)


WATCHDOG = (
    "[rank{rank}]:[E{day} 00:10:0{rank}.500000000 ProcessGroupNCCL.cpp:683] [Rank {rank}] Watchdog "
    "caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600250 milliseconds before timing out.\n"
)


def rows_of(path: Path) -> list[tuple[int, int | None, int | None]]:
    (source,) = resolve_inputs(path)
    table = watchdog.parse(source, ParseOptions()).tables["collectives"]
    return [(r["rank"], r["enqueue_ns"], r["end_ns"]) for r in table.to_pylist()]


def test_the_watchdog_says_when_a_call_was_enqueued_and_given_up(tmp_path: Path) -> None:
    """Ended on New Year's morning at 00:10:00.5 and later, after 600.25 s: begun in the old year's
    last second or the new one's first."""
    path = tmp_path / "job.log"
    path.write_text("".join(WATCHDOG.format(rank=r, day="0101") for r in (0, 1)))
    written = datetime(2025, 3, 9, tzinfo=UTC).timestamp()
    os.utime(path, (written, written))
    year = exact(datetime(2025, 1, 1))
    assert rows_of(path) == [
        (0, year + 250_000_000, year + 600_500_000_000),
        (1, year + 1_250_000_000, year + 601_500_000_000),
    ]
    path.write_text("2024-12-31 23:59:58 starting\n" + WATCHDOG.format(rank=0, day="101"))
    assert rows_of(path) == [(0, year + 250_000_000, year + 600_500_000_000)]


def test_a_warning_behind_a_stamp_has_its_time(tmp_path: Path) -> None:
    path = tmp_path / "nccl.log"
    path.write_text(
        "2025-11-22T12:03:04.250Z h:1:2 [0] NCCL INFO Bootstrap\n"
        "2025-11-22T12:03:05.250Z h:1:2 [0] x.cc:9 NCCL WARN Connection refused\n"
        "2025-11-22T12:03:06Z [2025-11-22 11:00:00] h:1:2 [0] x.cc:9 NCCL WARN Broken pipe\n"
    )
    (source,) = resolve_inputs(path)
    notes = nccl_debug.parse(source, ParseOptions()).tables["comm_notes"].to_pylist()
    assert [n["time_ns"] for n in notes] == [
        exact(datetime(2025, 11, 22, 12, 3, 5), "25"),
        exact(datetime(2025, 11, 22, 11, 0, 0)),  # NCCL's own is believed before a collector's
    ]
