"""NVTX ranges of one process: PyTorch's operators, NCCL's calls, and everybody's own ranges.

`torch.autograd.profiler.emit_nvtx` writes an operator as
`aten::mul, seq = 7, op_id = 12, sizes = [[2, 3], []], input_op_ids = [(11,0)]`; all but the name
may be absent. Ranges that count steps (`ProfilerStep#7`, `step 7`, `iteration_7`) are steps.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from htk.base.columns.arrow import match_texts, read_numbers
from htk.base.columns.types import Ints, Mask
from htk.base.schema import INT32, INT64, STRING, TEXT
from htk.parsers.common.log_records import Issues
from htk.parsers.common.nccl_ranges import CALL
from htk.parsers.common.span_tables import build_optional, build_process_table, step_numbers
from htk.parsers.nsight.payloads import read_payloads
from htk.parsers.nsight.report import NsightReport, ReportRows
from htk.parsers.nsight.tables import split_threads

_OPERATOR = (
    r"^(?P<name>.*?)(?:, seq = (?P<seq>\d{1,18}))?(?:, op_id = (?P<op>\d{1,18}))?"
    r"(?:, sizes = (?P<sizes>\[.*?\]))?(?:, input_op_ids = \[.*\])?$"
)
# Ranges of torch that are no operators, although they are written like some.
_RANGE = re.compile(
    r"^(nccl|gloo|mpi|ucc):|^(ProfilerStep|Optimizer\.|FSDP::|DistributedDataParallel|enumerate\()"
)
_EVALUATION = "autograd::engine::evaluate_function: "
_BACKWARD = re.compile(r"^autograd::engine::|Backward\d*$|Backward\d*>?$")
_UNNAMED = "unnamed range"


@dataclass(frozen=True)
class Ranges:
    """The ranges of a process, and what each is."""

    rows: ReportRows
    report: NsightReport
    name: pa.Array
    sequence: Ints  # -1: none
    operator_id: Ints  # -1: none
    sizes: pa.Array
    is_operator: Mask

    @classmethod
    def from_report(cls, report: NsightReport, issues: Issues) -> "Ranges":
        rows = report.spans["nvtx"]
        parts = pc.extract_regex(_read_texts(report, rows).fill_null(_UNNAMED), _OPERATOR)
        if isinstance(parts, pa.ChunkedArray):
            parts = parts.combine_chunks()
        raw = parts.field("name")
        seq = parts.field("seq")
        op = parts.field("op")
        sizes = parts.field("sizes")
        name = raw.dictionary_encode().cast(TEXT)
        sequence = _parse_integers(seq)
        operator_id = _parse_integers(op)
        written = (sequence >= 0) | (operator_id >= 0)
        is_operator = written & ~match_texts(name, _is_range)
        return cls(rows, report, name, sequence, operator_id, sizes, is_operator)

    @cached_property
    def _is_call(self) -> Mask:
        return match_texts(self.name, lambda name: CALL.match(name) is not None) & ~self.is_operator

    def operators(self) -> pa.Table:
        """Operators; a backward one names the thread that made most forward ones, since NVTX
        tells by the sequence number alone which belong together."""
        chosen = np.flatnonzero(self.is_operator)
        rows = self.rows.where(chosen)
        name = self.name.take(pa.array(chosen))
        sequence = self.sequence[chosen]
        ids = self.operator_id[chosen]
        backward = match_texts(name, lambda n: _BACKWARD.search(n) is not None) & (sequence >= 0)
        thread = read_numbers(rows.table["globalTid"], 0) & 0xFFFFFF
        forward = thread[(sequence >= 0) & ~backward]
        main = int(np.bincount(forward).argmax()) if len(forward) else 0
        has_forward = (sequence >= 0) & (~backward | (main > 0))
        sizes = pc.replace_substring(self.sizes.take(pa.array(chosen)), " ", "")
        shaped = pc.if_else(pc.not_equal(sizes, ""), sizes, pa.scalar(None, STRING))
        return build_process_table(
            "cpu_ops",
            {
                "name": name,
                **split_threads(rows),
                **rows.times,
                "sequence": build_optional(sequence, sequence >= 0),
                "forward_thread": build_optional(np.where(backward, main, 0), has_forward),
                "record_function_id": build_optional(ids, ids >= 0),
                "input_dims": shaped.dictionary_encode().cast(TEXT),
            },
            len(rows),
        )

    def annotations(self) -> pa.Table:
        """Return the ranges that are no operators; NCCL's own calls are among them."""
        chosen = np.flatnonzero(~self.is_operator)
        rows = self.rows.where(chosen)
        name = self.name.take(pa.array(chosen))
        steps = step_numbers(name, rows.end - rows.start)
        return build_process_table(
            "annotations",
            {
                "name": name,
                "on_gpu": pa.array(np.zeros(len(rows), bool)),
                "step": build_optional(steps, steps >= 0, INT32),
                **split_threads(rows),
                **rows.times,
            },
            len(rows),
        )

    def calls(self) -> pa.Table:
        """NCCL's calls with what their payloads say."""
        chosen = np.flatnonzero(self._is_call)
        rows = self.rows.where(chosen)
        columns = {
            "name": self.name.take(pa.array(chosen)),
            **split_threads(rows),
            **rows.times,
        }
        return pa.table({**columns, **read_payloads(self.report, rows)})


def _read_texts(report: NsightReport, rows: ReportRows) -> pa.ChunkedArray:
    """Return the text of each range: its own, else the registered one."""
    own = rows.table["text"]
    codes = report.strings.codes(rows.table["textId"])
    registered = (
        report.strings.values.take(pa.array(np.maximum(codes, 0), mask=codes < 0))
        if len(report.strings.values)
        else pa.nulls(len(rows), STRING)
    )
    return pc.coalesce(own, registered)


def _is_range(name: str) -> bool:
    """Return whether torch wrote a range of a user or of c10d, not an operator."""
    if _RANGE.match(name):
        return True
    return " " in name and not name.startswith(_EVALUATION)


def _parse_integers(digits: pa.Array) -> Ints:
    filled = pc.if_else(pc.not_equal(digits, ""), digits, pa.scalar(None, STRING))
    return read_numbers(filled.cast(INT64), -1)
