"""Logs of jobs whose first lines are of no known format."""

import io

import pytest

from htk.base.core.parser import ParseOptions, Source
from htk.base.errors import MalformedTrace, UnknownFormat
from htk.base.io.sources import read_head, resolve_inputs
from htk.parsers import job_log, list_parsers, nccl_debug
from tests.parsers.log_files import SAMPLES, parsed, readings, rows, sample


def test_what_a_job_says_last_is_found() -> None:
    (source,) = resolve_inputs(SAMPLES / "job_log/slurm-4711.out.gz")
    assert [p.NAME for p in list_parsers() if p.sniff(read_head(source))] == ["job_log"]
    end = sample("job_log/slurm-4711.out.gz")
    assert [c["seq"] for c in rows(end, "collectives")] == [78, 78, 78]
    assert readings(end)[None, "unknown"] >= 1200


def test_a_text_of_no_known_line_is_no_log() -> None:
    source = Source("notes.log", lambda: io.BytesIO(b"hello\n" * 20_000))
    with pytest.raises(UnknownFormat, match=r"notes\.log"):
        job_log.parse(source, ParseOptions())
    with pytest.raises(MalformedTrace):
        parsed(nccl_debug, "hello\n")
