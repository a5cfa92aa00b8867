"""Files that come with recordings and are none."""

from pathlib import Path

import pytest

from htk.base.errors import UnknownFormat
from htk.traces.trace.opening import OpenOptions, open_trace


@pytest.mark.parametrize(
    ("name", "content", "instead"),
    [
        ("gemm.ncu-rep", b"NVR\x00\x01\x02", "nsys export"),
        ("rank.0.et", b"\x0a\x0a\x05schema", "ExecutionTraceObserver"),
        ("op_statistic.csv", b"Device_id,OP Type,Core Type,Count\n0,Add,AI_CORE,4\n",
         "trace_view.json"),
        ("step_trace_time.csv", b"Device_id,Step,Computing,Overlapped\n0,1,2.0,1.0\n",
         "trace_view.json"),
        ("communication.json", b'{"step1": {"p2p": {}, "collective": {}}}', "trace_view.json"),
        ("notes.txt", b"Device_id, of course\n", "htk formats"),
    ],
)  # fmt: skip
def test_the_refusal_says_what_to_open_instead(
    tmp_path: Path, name: str, content: bytes, instead: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnknownFormat, match=instead):
        open_trace(tmp_path / name, OpenOptions(cache=False))
