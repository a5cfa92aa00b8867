"""What a GPU held at the peaks of a recorded step: in its passes, and in its optimizer.

The two move apart: what the passes keep grows with the batch, what the optimizer takes for a while
with the parameters. At a small batch the optimizer's peak is the higher one, whatever the batch.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from htk.base.columns.arrow import match_texts, number_or_null, read_keys, read_numbers, with_column
from htk.base.columns.coded_texts import CodedTexts
from htk.base.columns.order import order_by
from htk.base.columns.types import NONE, Floats, Ints, Mask, take_or
from htk.base.mappings import NamedTables, ReplacedTables
from htk.base.names.phases import BACKWARD, FORWARD, OPTIMIZER
from htk.base.schema import INT64
from htk.quantities.measures.memory_categories import Categories, pair_block_events
from htk.quantities.measures.memory_use import MemoryUse, is_use, operators_at
from htk.quantities.measures.passes import phase_codes
from htk.whatif.operator_shapes import operator_shapes

_GPU = (1, 6, 20)  # c10::DeviceType of CUDA, HIP and others that register themselves
_GROWS = ("activation", "temporary", "input", "unknown")
_OF_HOST = ("cpu_ops", "annotations")
_CASTS = ("aten::_to_copy", "aten::to", "aten::copy_")
_CAST_DEPTH = 3  # operators from an allocation to the cast that it is for
_OF_WEIGHTS = 2  # dimensions of a weight, at most


@dataclass(frozen=True)
class PeakChange:
    """What an edit makes of a recorded peak."""

    state: float = 0.0  # bytes more
    growing: float = 1.0  # times what grows with the batch
    optimizer: float = 1.0  # times what the optimizer takes for a while
    casts: float = 1.0  # times the casts of weights
    accumulates: bool | None = None  # from one micro-batch to several, or back; None: neither


@dataclass(frozen=True, eq=False)
class RecordedPeaks:
    """Bytes on the GPU with the highest peak, after each allocation and release."""

    held: Floats
    growing: Floats  # of it, what grows with the batch
    gradients: Floats  # that were not there before the step
    casts: Floats  # of weights in another format, as autocast keeps them
    updates: Mask  # whether the optimizer runs
    is_of_blocks: bool = True  # else what grows is all that is above the least

    @classmethod
    def single(cls, static: float, held: float) -> "RecordedPeaks":
        """Return a peak whose blocks are not told: all above the least grows."""
        nothing = np.zeros(1)
        grows = np.array([held - static])
        return cls(np.array([held]), grows, nothing, nothing, np.zeros(1, bool), False)

    @property
    def highest(self) -> float:
        return float(self.held.max())

    @property
    def static(self) -> float:
        """Return the least that is held."""
        return float(np.min(self.held - self.growing - self.gradients - self.casts))

    def after(self, change: PeakChange) -> float:
        """Return the peak after a change."""
        fixed = self.held - self.growing - self.casts
        passes = fixed + change.growing * self.growing + change.casts * self.casts
        most = float(self.gradients.max())
        first = ~self.updates
        if change.accumulates is True:
            passes = passes + most - self.gradients
        elif change.accumulates is False and most:
            first &= self.gradients < most  # the first of several micro-batches
        peak = float(passes[first].max(initial=0.0))
        if self.updates.any():
            own = (self.held - self.static)[self.updates].max()
            peak = max(peak, self.static + change.optimizer * float(own))
        return peak + change.state


def recorded_peaks(
    tables: NamedTables, tokens: int | None, units: tuple[int, ...] = ()
) -> RecordedPeaks | None:
    """Return the peaks of a recording; None: no allocations were recorded.

    `tokens`: of a micro-batch on a rank, which tell a weight's cast from an activation's; `units`:
    bytes of what is gathered of sharded parameters, which does not grow with the batch.
    """
    rank = _rank_of_highest_peak(tables["memory"])
    if rank is None:
        return None
    tables = tables_of_rank(tables, rank)
    use = MemoryUse.from_memory(tables["memory"])
    worst = int(np.argmax(np.where(_is_on_gpu(use.table), use.allocated, -1)))
    same = use.devices.group_ids == use.devices.group_ids[worst]
    rows = np.flatnonzero(_is_on_gpu(use.table) & same)
    held = use.allocated[rows].astype(np.float64)
    blocks = RecordedBlocks.from_tables(tables, use, tokens, units)
    if not len(blocks.born):
        return RecordedPeaks.single(float(held.min()), float(held.max()))

    def held_of(chosen: Mask) -> Floats:
        return blocks.held(use, chosen & same[blocks.born])[rows]

    return RecordedPeaks(
        held,
        held_of(blocks.grows),
        held_of(blocks.category == "gradient"),
        held_of(blocks.casts),
        _in_optimizer(tables, use.time[rows]),
    )


@dataclass(frozen=True, eq=False)
class RecordedBlocks:
    """The blocks of memory of a rank: the events by which they come and go, and what they are."""

    born: Ints
    freed: Ints  # NONE: kept
    category: NDArray[np.str_]
    casts: Mask  # of weights in another format, as autocast keeps them
    grows: Mask  # with the batch

    @classmethod
    def from_tables(
        cls, tables: NamedTables, use: MemoryUse, tokens: int | None, units: tuple[int, ...]
    ) -> "RecordedBlocks":
        born, freed = pair_block_events(use)
        if not len(born):
            nothing = np.zeros(0, bool)
            return cls(born, freed, np.zeros(0, np.str_), nothing, nothing)
        names = ("cpu_ops", "op_links", "op_passes", "annotations")
        categories = Categories.from_use(use, *(tables[name] for name in names))
        category = np.array(categories.names)[categories.code[born]]
        casts = _casts_of_weights(tables, use, born, tokens)
        on_gpu = np.isin(read_numbers(use.table["device_type"], NONE)[born], _GPU)
        grows = on_gpu & np.isin(category, _GROWS) & ~casts & ~np.isin(use.size[born], units)
        return cls(born, freed, category, casts, grows)

    def held(self, use: MemoryUse, chosen: Mask) -> Floats:
        """Return the bytes of some blocks that are held after each event."""
        change = np.zeros(len(use.size))
        change[self.born[chosen]] = use.size[self.born[chosen]]
        gone = self.freed[chosen]
        born = self.born[chosen][gone != NONE]
        np.subtract.at(change, gone[gone != NONE], use.size[born])
        return np.cumsum(change)


def _is_on_gpu(memory: pa.Table) -> Mask:
    """Return which events leave something allocated on a GPU."""
    is_on_gpu: Mask = np.isin(read_numbers(memory["device_type"], NONE), _GPU)
    return is_on_gpu & (read_numbers(memory["allocated_bytes"]) > 0)


def _rank_of_highest_peak(memory: pa.Table) -> int | None:
    """Return the rank with the highest peak on a GPU, of several the first; None: none was
    recorded."""
    on_gpu = _is_on_gpu(memory) & is_use(memory)
    allocated = np.where(on_gpu, read_numbers(memory["allocated_bytes"]), 0)
    if not allocated.any():
        return None
    return int(read_keys(memory["rank"])[allocated == allocated.max()].min())


def tables_of_rank(tables: NamedTables, rank: int) -> NamedTables:
    """Return tables of whose memory, operators and ranges those of a rank are left."""
    is_kept = {name: read_keys(tables[name]["rank"]) == rank for name in ("memory", *_OF_HOST)}
    if all(kept.all() for kept in is_kept.values()):
        return tables
    is_kept |= dict.fromkeys(("op_links", "op_passes"), is_kept["cpu_ops"])
    left = {name: tables[name].filter(pa.array(kept)) for name, kept in is_kept.items()}
    new_row = np.where(is_kept["cpu_ops"], np.cumsum(is_kept["cpu_ops"]) - 1, NONE)
    parent = take_or(new_row, read_numbers(left["op_links"]["parent_row"], NONE))
    left["op_links"] = with_column(left["op_links"], "parent_row", number_or_null(parent, INT64))
    return ReplacedTables(tables, left)


def _in_optimizer(tables: NamedTables, time: Ints) -> Mask:
    """Return which times follow an operator of the optimizer, rather than one of a pass."""
    ops = tables["cpu_ops"]
    phase = phase_codes(tables["op_passes"])
    in_pass = np.isin(phase, (FORWARD, BACKWARD, OPTIMIZER))
    start = read_numbers(ops["start_ns"])[in_pass]
    order = order_by(start)
    last = np.searchsorted(start[order], time, "right") - 1
    return np.asarray(take_or(phase[in_pass][order], last) == OPTIMIZER)


def _casts_of_weights(tables: NamedTables, use: MemoryUse, born: Ints, tokens: int | None) -> Mask:
    """Return the blocks that hold a weight in another format, as autocast keeps them."""
    ops = tables["cpu_ops"]
    parent = np.append(read_numbers(tables["op_links"]["parent_row"], NONE), NONE)
    row = operators_at(use.table, ops)[born]
    casts = match_texts(ops["name"], lambda name: name in _CASTS)
    dims = CodedTexts.taken(ops["input_dims"], np.arange(ops.num_rows))
    weight_shaped = dims.where(lambda text: _is_weight(text, tokens))
    wanted = np.append(casts & weight_shaped, False)
    of_weights = np.zeros(len(born), bool)
    for _ in range(_CAST_DEPTH):
        of_weights |= wanted[row]
        row = parent[row]
    return of_weights


def _is_weight(dims: str, tokens: int | None) -> bool:
    shapes = operator_shapes(dims)
    return bool(shapes and shapes[0]) and len(shapes[0]) <= _OF_WEIGHTS and shapes[0][0] != tokens
