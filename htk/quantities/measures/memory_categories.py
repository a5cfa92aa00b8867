"""Categories of memory blocks, inferred where the recording does not say.

From the phase in which a block is allocated and from how long it lives, as torch's own memory
profiler defines its categories: what forward leaves for backward is activation, what backward
leaves for the optimizer is gradient, what the optimizer keeps is its state, what data loading
brings is input, what is set up before the first forward and stays is parameter. What is gone
before any other phase could use it is temporary. All else is unknown.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, mark_valid, read_numbers
from htk.base.columns.groups import Groups, number_hosts
from htk.base.columns.nesting import Nested
from htk.base.columns.order import order_by
from htk.base.columns.segments import SegmentTimes
from htk.base.columns.types import NONE, Ints, Mask, take_or
from htk.base.names.phases import BACKWARD, DATALOADER, FORWARD, OPTIMIZER, OTHER
from htk.quantities.measures.memory_use import MemoryUse
from htk.quantities.measures.passes import naming_ranges, phase_codes, phases_of_ranges, threads_of

NAMES = (
    "parameter",
    "optimizer_state",
    "input",
    "temporary",
    "activation",
    "gradient",
    "unknown",
)
_PARAMETER, _STATE, _INPUT, _TEMPORARY, _ACTIVATION, _GRADIENT, UNKNOWN = range(len(NAMES))
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Categories:
    """Category of each memory event; a release has that of its block."""

    code: Ints
    names: list[str]
    inferred: bool

    @classmethod
    def from_use(
        cls,
        use: MemoryUse,
        cpu_ops: pa.Table,
        op_links: pa.Table,
        op_passes: pa.Table,
        annotations: pa.Table,
    ) -> "Categories":
        recorded = use.table["category"]
        if mark_valid(recorded).any():
            code, names = codes_of(recorded)
            listed = [str(name) for name in names.to_pylist()]
            return cls(np.where(code < 0, len(listed), code), [*listed, "unknown"], False)
        return cls(
            _infer_categories(use, cpu_ops, op_links, op_passes, annotations), list(NAMES), True
        )


def _infer_categories(
    use: MemoryUse,
    cpu_ops: pa.Table,
    op_links: pa.Table,
    op_passes: pa.Table,
    annotations: pa.Table,
) -> Ints:
    code = np.full(use.table.num_rows, UNKNOWN, np.int64)
    born, freed = pair_block_events(use)
    if not len(born) or not cpu_ops.num_rows:
        return code
    when = _When(cpu_ops, op_links, op_passes, annotations)
    host = number_hosts(use.table)[born]
    birth = use.time[born]
    death = np.where(freed == NONE, _NEVER, use.time[freed])
    phase = when.phase(use.table.take(pa.array(born)))
    code[born] = _by_life(phase, birth, death, host, when)
    was_freed = (freed != NONE) & (use.size[freed] < 0)
    code[freed[was_freed]] = code[born[was_freed]]
    return code


def pair_block_events(use: MemoryUse) -> tuple[Ints, Ints]:
    """Return events that allocate a block, and for each the one by which it is gone (`NONE`: none).

    It frees the block, or (where that was not recorded) gives its address to another.
    """
    with_address = np.flatnonzero(mark_valid(use.table["address"]) & (use.size != 0))
    address = codes_of(use.table["address"])[0][with_address].astype(np.int64)
    block = Groups.by_keys([use.devices.group_ids[with_address], address]).group_ids
    order = with_address[order_by(block)]
    block = np.sort(block)
    size = use.size[order]
    here = np.flatnonzero(size > 0)
    after = np.minimum(here + 1, max(len(order) - 1, 0))
    freed = (after > here) & (block[after] == block[here])
    return order[here], np.where(freed, order[after], NONE)


def _by_life(phase: Ints, birth: Ints, death: Ints, host: Ints, when: "_When") -> Ints:
    forward = when.next(FORWARD, host, birth)
    backward = when.next(BACKWARD, host, birth)
    step = when.next(OPTIMIZER, host, birth)
    kept = death == _NEVER
    trained = when.ever(BACKWARD, host)
    outlives = kept & (step != _NEVER)  # kept beyond its step: a buffer, an output, a leak
    code = np.full(len(phase), UNKNOWN, np.int64)
    code[phase == DATALOADER] = _INPUT
    code[(phase == OTHER) & kept & (forward != _NEVER)] = _PARAMETER
    in_phase = phase == FORWARD
    code[in_phase & ~kept & (death < backward)] = _TEMPORARY
    code[in_phase & trained & (death >= backward) & ~outlives] = _ACTIVATION
    in_phase = phase == BACKWARD
    code[in_phase] = np.where(death >= step, _GRADIENT, np.where(kept, _GRADIENT, _TEMPORARY))[
        in_phase
    ]
    in_phase = phase == OPTIMIZER
    code[in_phase] = np.where(death < np.minimum(forward, backward), _TEMPORARY, _STATE)[in_phase]
    return code


class _When:
    """The phase at each time, thread by thread, and when the next begins on a rank."""

    def __init__(
        self, cpu_ops: pa.Table, op_links: pa.Table, op_passes: pa.Table, annotations: pa.Table
    ) -> None:
        self._ops = cpu_ops
        self._op_links = op_links
        self._ranges = naming_ranges(annotations)
        self._start = read_numbers(cpu_ops["start_ns"])
        self._of_ops = phase_codes(op_passes)
        host = number_hosts(cpu_ops)
        self._starts = {
            pass_code: SegmentTimes(host[in_phase], self._start[in_phase])
            for pass_code in (FORWARD, BACKWARD, OPTIMIZER)
            if (in_phase := self._of_ops == pass_code).any()
        }

    def phase(self, events: pa.Table) -> Ints:
        """Return the phase of each event: that of the operator around it, else of the range, else
        of the operator before it."""
        of_ops, of_ranges, thread = threads_of(self._ops, self._ranges, events)
        time = read_numbers(events["time_ns"])
        end = read_numbers(self._ops["end_ns"])
        parent = read_numbers(self._op_links["parent_row"], NONE)
        ids = read_numbers(self._ops["external_id"])
        ops = Nested(of_ops, self._start, end, parent, ids)
        ranges = Nested(of_ranges, *(read_numbers(self._ranges[c]) for c in ("start_ns", "end_ns")))
        named = take_or(phases_of_ranges(self._ranges), ranges.around(thread, time), OTHER)
        inside = ops.around(thread, time)
        last = SegmentTimes(of_ops, self._start)
        row = np.where(inside != NONE, inside, last.last(thread, time))
        by_range = (inside == NONE) & (named != OTHER)
        return np.where(by_range, named, take_or(self._of_ops, row, OTHER))

    def ever(self, phase: int, host: Ints) -> Mask:
        """Return whether there is such an operator at all."""
        return np.asarray(self.next(phase, host, np.zeros(len(host), np.int64)) != _NEVER)

    def next(self, phase: int, host: Ints, time: Ints) -> Ints:
        """Return when an operator of that phase begins next, by host, in ns (`_NEVER`: never)."""
        line = self._starts.get(phase)
        return np.full(len(host), _NEVER) if line is None else line.next_time(host, time, _NEVER)
