"""GPU activities of Nsight, rocprof, rocpd and XLA files, read a second time."""

import json
import sqlite3
from pathlib import Path

import pytest

from htk.base.mappings import Fields
from htk.verdicts.verify import other_formats
from htk.verdicts.verify.outcome import DIFFERS, OK, list_outcomes
from htk.verdicts.verify.subject import Subject
from htk.verdicts.verify.tally import NotApplicable
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[4] / "sample_traces"
FORMATS = ("nsight", "rocpd", "rocprof_json", "xplane")


def outcome_of(path: Path) -> tuple[str, str]:
    (found,) = (o for o in list_outcomes(Subject(str(path))) if o.check.name == "other formats")
    return found.state, found.finding


@pytest.mark.parametrize("name", FORMATS)
def test_samples_agree(name: str) -> None:
    state, finding = outcome_of(SAMPLES / name)
    assert state == OK and not finding.startswith("0 values")


@pytest.mark.parametrize("name", thinned(FORMATS))
def test_a_nanosecond_more_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = other_formats._sum_answer

    def longer(rows: list[Fields]) -> dict[str, tuple[int, int]]:
        return {kind: (count, time + 1) for kind, (count, time) in read(rows).items()}

    monkeypatch.setattr(other_formats, "_sum_answer", longer)
    assert outcome_of(SAMPLES / name)[0] == DIFFERS


@pytest.mark.parametrize(
    "name",
    thinned(["nsys/mfu_2gpu_before.sqlite", "rocprof/908_results.json.gz", "jax/conv_minimal_08"]),
)
def test_public_files_agree(shared: Path, name: str) -> None:
    state, finding = outcome_of(shared / "traces" / name)
    assert state == OK and not finding.startswith("0 values")


def test_databases_are_added_up_by_the_names_of_their_tables(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as database:
        for table, rows in (("CUPTI_ACTIVITY_KIND_KERNEL", [(1, 4), (5, 15)]),
                            ("CUPTI_ACTIVITY_KIND_MEMCPY", [(7, 8)]),
                            ("CUPTI_ACTIVITY_KIND_RUNTIME", [(0, 99)])):  # fmt: skip
            database.execute(f'CREATE TABLE {table} (start INT, "end" INT, virtualAddress INT)')
            database.executemany(f"INSERT INTO {table} VALUES (?, ?, 0)", rows)
    totals = other_formats._of_nsight(path.read_bytes())
    assert totals == {"kernel": (2, 13), "copy": (1, 1)}


def test_json_is_added_up_over_processes() -> None:
    span = {"start_timestamp": 10, "end_timestamp": 14}
    process = {"buffer_records": {"kernel_dispatch": [span, span], "memory_copy": [span]}}
    data = json.dumps({"rocprofiler-sdk-tool": [process, process]}).encode()
    assert other_formats._of_rocprof(data) == {"kernel": (4, 16), "copy": (2, 8)}


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protobuf message; numbers below 2^14."""
    if isinstance(value, int):
        return bytes([number << 3, value & 0x7F | 0x80, value >> 7])
    return bytes([number << 3 | 2, len(value)]) + value


def test_events_of_streams_alone_are_added_up() -> None:
    """From 5 ns + 2.5 to 5 + 6.2 ns: 7 to 11. Lines that are no streams and planes of the host are
    left out."""
    event = field(1, 1) + field(2, 2500) + field(3, 3700)
    stream = field(2, b"Stream #7(Compute)") + field(3, 5) + field(4, event)
    other = field(2, b"XLA Ops") + field(3, 5) + field(4, event)
    device = field(2, b"/device:GPU:0") + field(3, stream) + field(3, other)
    host = field(2, b"/host:CPU") + field(3, stream)
    space = field(1, device) + field(1, host)
    assert other_formats._of_xplane(space) == {"activity": (1, 4)}


@pytest.mark.parametrize("name", [*FORMATS, "tpu"])
@pytest.mark.parametrize("data", [b"", b"\xff" * 40, b"SQLite format 3\x00" + b"\x00" * 90, b"{}"])
def test_damage_is_no_traceback(name: str, data: bytes) -> None:
    readers = {
        "nsight": other_formats._of_nsight,
        "rocpd": other_formats._of_rocpd,
        "rocprof_json": other_formats._of_rocprof,
        "xplane": other_formats._of_xplane,
        "tpu": other_formats._of_tpus,
    }
    try:
        assert readers[name](data) == {}
    except NotApplicable as why:
        assert "cannot be added up" in str(why)
