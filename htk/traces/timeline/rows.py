"""The rows of any table that have a start and an end, as a timeline."""

from typing import Any

import numpy as np
import pyarrow as pa

from htk.base.mappings import Fields
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.cuts import TimeCuts
from htk.traces.timeline.detail import Detail
from htk.traces.timeline.facts import Facts
from htk.traces.timeline.lanes import assemble_lanes
from htk.traces.timeline.row_spans import row_spans
from htk.traces.trace.trace import Trace


class RowsTimeline(TraceTimeline):
    """A lane for each rank: what an analysis found, where in time it was."""

    def __init__(self, table: pa.Table, name: str) -> None:
        nothing = Trace(())
        source = row_spans(table, name)
        origin = int(source.start.min(initial=np.iinfo(np.int64).max)) if len(source) else 0
        self.trace = nothing
        self.aligned = False
        self.cuts = TimeCuts.none()
        self.recordings = []
        self._files = np.empty((0, 3), np.int64)
        self.counters = {}
        self.nodes = {}
        parts = [source] if len(source) else []
        self.detail = Detail(assemble_lanes(parts, origin))
        self.lanes = self.detail.lanes
        self.facts = Facts(nothing, self.lanes, table)

    def about(self) -> Fields:
        return {**super().about(), "can_align": False, "can_path": False}

    def _list_steps(self) -> list[list[int]]:
        return []

    def _list_ranks(self) -> list[list[Any]]:
        return []
