"""Files that come with recordings and are none: what they are, and what to open instead."""

import re
from typing import NamedTuple

from htk.base.core.parser import Head

_OTHER_EXPORT = (
    "open the trace_view.json, ascend_pytorch_profiler_RANK.db or kernel_details.csv of its folder"
)


class _Kind(NamedTuple):
    """Files of one kind, by how they begin or by the ending of their names."""

    mark: re.Pattern[bytes] | str
    advice: str


_KINDS = (
    _Kind(
        re.compile(rb"NVR\x00"),
        "a report of Nsight Compute, of single kernels; htk reads Nsight Systems: "
        "nsys profile --trace=cuda,nvtx, then nsys export --type sqlite",
    ),
    _Kind(
        ".et",
        "a graph of Chakra's converter; open the JSON of PyTorch's ExecutionTraceObserver "
        "that it was made from, beside the profiler's trace",
    ),
    _Kind(
        re.compile(
            rb"\A(?:\xef\xbb\xbf)?(?:Step Id,)?Device_?id,"
            rb"(?=[^\n]{0,999}(?:Accelerator Core|Computing|OP Type|Core Type))",
            re.IGNORECASE,
        ),
        f"a table of Ascend's profiler, without the host's calls; {_OTHER_EXPORT}",
    ),
    _Kind(
        re.compile(rb'\A\s*\{\s*"step\w*"\s*:\s*\{\s*"(?:p2p|collective)"\s*:'),
        f"sums of Ascend's collectives; {_OTHER_EXPORT}",
    ),
)


def describe_foreign(start: Head) -> str | None:
    """Return what a file is that no parser reads, and what to open instead; None: unknown."""
    for kind in _KINDS:
        if isinstance(kind.mark, str):
            is_of_kind = start.name.endswith(kind.mark)
        else:
            is_of_kind = kind.mark.match(start.data) is not None
        if is_of_kind:
            return kind.advice
    return None
