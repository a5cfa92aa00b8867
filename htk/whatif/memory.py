"""Peak memory after an edit, and how likely it is not to fit.

Where allocations were recorded, the recorded peak is split into what stays from step to step
(parameters, gradients, optimizer state), what is gathered of sharded parameters, and the rest,
which is activations and grows with the batch. Where not, the same parts are reckoned from the sizes
of collectives and the shapes of attention (Rajbhandari 2020, Korthikanti 2022), with a wider band.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from htk.columns.arrow import numbers, valid
from htk.models.detected import detected
from htk.whatif.micro_batches import micro_batches
from htk.whatif.parallelism import sharded
from htk.whatif.shapes import inputs
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import gpus_of_a_node

_STATE = 16  # bytes of a parameter: mixed precision and Adam
_GRADIENT = 1.0  # bytes of a gradient over those of the parameter as gathered
_LAYER, _INPUT, _LOGITS = 34, 2, 6  # bytes of a token and hidden element, or vocabulary entry
_SURE = 0.8  # of activations as reckoned
_RESERVED = 1.5e9  # context, libraries, buffers of communication, roughly
_FRAGMENTS = 0.03  # of the peak: what the allocator cannot use
_MEASURED_SIGMA, _CHANGED_SIGMA, _RECKONED_SIGMA = 0.03, 0.08, 0.15
_GPU = (1, 6, 20)  # c10::DeviceType of CUDA, HIP and others that register themselves


@dataclass(frozen=True)
class ShardedUnits:
    """Sharded parameters, in bytes as gathered."""

    strategy: str
    shards: int
    ranks: int
    layer: float  # one unit
    root: float  # what is no layer
    layers: int
    node: int  # GPUs of a node

    @property
    def whole(self) -> float:
        return self.layer * self.layers + self.root

    @property
    def parameters(self) -> float:
        return self.whole / 2  # gathered in half precision

    def gathered(self, strategy: str) -> float:
        """Beside the shards: units in use and their gradients."""
        gradients = 2 * _GRADIENT * self.layer
        if strategy == "ddp":
            return 0.0
        if strategy == "shard_grad_op":
            return self.whole + gradients
        return 2 * self.layer + self.root + gradients


@dataclass(frozen=True)
class Held:
    """What a GPU held at its peak in the recording."""

    static: float
    activations: float
    units: ShardedUnits | None
    capacity: float | None
    measured: float | None = None  # the recorded peak
    layers: int = 0  # with attention; 0: not known
    recomputed: bool = False  # layers run again for their backward pass

    @property
    def of_checkpointing(self) -> float:
        """What is kept with it over what is kept without: inputs of layers, and one of them."""
        return (_INPUT * self.layers + _LAYER) / (_LAYER * self.layers) if self.layers else 1.0

    @property
    def reckoned(self) -> float:
        """The peak as its parts make it."""
        gathered = self.units.gathered(self.units.strategy) if self.units else 0.0
        return self.static + gathered + self.activations


def held(tables: Mapping[str, pa.Table], scene: StepModel) -> Held | None:
    """None: neither allocations nor enough shapes were recorded."""
    units = _units(scene)
    capacity = _capacity(tables["ranks"])
    layers, full = _reckoned(scene)
    by_shapes = Held(0.0, full or 0.0, units, capacity, None, layers, _recomputes(scene))
    activations = full and full * (by_shapes.of_checkpointing if by_shapes.recomputed else 1.0)
    seen = _recorded(tables["memory"])
    if seen is not None:
        static, peak = seen
        gathered = units.gathered(units.strategy) if units else 0.0
        # at the peak fewer units may be gathered than at most; the batch grows activations in any
        # case, by no less than shapes tell
        least = min(_SURE * (activations or 0.0), peak - static)
        kept = max(peak - static - gathered, least)
        return replace(by_shapes, static=static, activations=kept, measured=peak)
    if units is None or activations is None:
        return None
    static = _STATE * units.parameters / units.shards + _RESERVED
    return replace(by_shapes, static=static, activations=activations)


def after(before: Held, edits: Sequence[tuple[str, str]], kept: float) -> tuple[int, float | None]:
    """Peak, and the probability that it does not fit; `kept`: activations, over the recorded."""
    asked = dict(edits)
    units, static, gathered = before.units, before.static, 0.0
    if units is not None:
        strategy, shards, _ = sharding_after(
            units.strategy, units.shards, units.ranks, units.node, asked
        )
        change = 1 / shards - 1 / units.shards
        static = max(static + _STATE * units.parameters * change, 0.0)
        gathered = units.gathered(strategy) if shards > 1 else 0.0
    activations = before.activations * kept * _checkpointed(before, asked.get("checkpointing"))
    peak = static + gathered + activations
    if before.measured is not None:  # what the parts miss of the recorded peak stays
        peak += before.measured - before.reckoned
    if before.capacity is None:
        return round(peak), None
    moved = abs(math.log(max(peak, 1.0) / max(before.reckoned, 1.0)))
    sigma = (
        math.hypot(_MEASURED_SIGMA, _CHANGED_SIGMA * min(moved, 2.0))
        if before.measured is not None
        else _RECKONED_SIGMA
    )
    room = before.capacity - (0.0 if before.measured is None else _RESERVED)
    fits = math.log(room / (max(peak, 1.0) * (1 + _FRAGMENTS)))
    return round(peak), 1 - NormalDist().cdf(fits / sigma)


def _checkpointed(before: Held, asked: str | None) -> float:
    """What is kept for the backward pass, over what was."""
    if asked == "on" and not before.recomputed:
        return before.of_checkpointing
    if asked == "off" and before.recomputed:
        return 1 / before.of_checkpointing
    return 1.0


def sharding_after(
    strategy: str, shards: int, ranks: int, node: int, asked: Mapping[str, str]
) -> tuple[str, int, int]:
    """Strategy, ranks that share a shard, and ranks in all, after these edits."""
    name, _, size = asked.get("sharding", strategy).partition(":")
    nodes, _, each = asked.get("world", "").partition("x")
    if nodes.isdigit() and (not each or each.isdigit()):
        ranks = int(nodes) * int(each or 1)
    if name == "ddp":
        return name, 1, ranks
    if name != "hybrid_shard":
        return name, ranks, ranks
    if "sharding" not in asked:
        return name, shards, ranks
    return name, int(size) if size.isdigit() else max(min(node, ranks // 2), 1), ranks


def _units(scene: StepModel) -> ShardedUnits | None:
    now = sharded(scene)
    if now is None or not now.unit_bytes:
        return None
    layer = float(np.median(now.unit_bytes))
    layers = sum(abs(u - layer) <= 0.05 * layer for u in now.unit_bytes)
    root = max(sum(now.unit_bytes) - layers * layer, 0.0)
    return ShardedUnits(
        now.strategy, now.ranks, now.world, layer, root, layers, gpus_of_a_node(scene)
    )


def _recorded(memory: pa.Table) -> tuple[float, float] | None:
    """Least and most that was allocated, on the GPU with the highest peak."""
    kind = numbers(memory["device_type"], -1)
    on_gpu = np.isin(kind, _GPU) & valid(memory["allocated_bytes"])
    if not on_gpu.any():
        return None
    allocated = numbers(memory["allocated_bytes"])[on_gpu]
    rank, device = (numbers(memory[c], -1)[on_gpu] for c in ("rank", "device"))
    worst = int(np.argmax(allocated))
    same = (rank == rank[worst]) & (device == device[worst]) & (allocated > 0)
    return float(allocated[same].min()), float(allocated[worst])


def _recomputes(scene: StepModel) -> bool:
    return bool((scene.facts.recomputed & scene.is_compute).any())


def _reckoned(scene: StepModel) -> tuple[int, float | None]:
    """Layers, and activations of a micro-batch without recomputation and with fused attention."""
    tokens = inputs(scene).tokens
    first = scene.graph.ranks[0]
    of_rank = (scene.graph.activities.rank == first) & ~scene.facts.recomputed
    layers, hidden, widest = 0, 0, 0
    for activity in np.flatnonzero(of_rank).tolist():  # activities of one rank
        op, dims = scene.facts.op[activity] or "", scene.facts.dims[activity]
        if not dims or not ("attention" in op or op.endswith(("::mm", "::addmm"))):
            continue
        shapes = [s for s in json.loads(dims) if isinstance(s, list) and len(s) > 1]
        if "mm" in op:
            widest = max([widest, *(n for s in shapes for n in s)])
        elif "backward" not in op and shapes and len(shapes[0]) == 4:
            width = int(np.prod(shapes[0])) // tokens if tokens else 0
            layers, hidden = layers + 1, width
    layers //= max(micro_batches(scene), 1)
    if tokens is None or not layers:
        return layers, None
    logits = _LOGITS * tokens * widest if widest > 4 * hidden else 0
    return layers, float(layers * _LAYER * tokens * hidden + logits)


def _capacity(ranks: pa.Table) -> float | None:
    """Memory of a GPU, as recorded, else by its name."""
    for name, text in zip(
        ranks["device_name"].to_pylist(), ranks["device_properties"].to_pylist(), strict=True
    ):
        try:
            properties = json.loads(text or "[]")
            return float(properties[0]["totalGlobalMem"])
        except (ValueError, LookupError, TypeError):
            gpu = detected(name)
            if gpu:
                return gpu.memory_gb * 1e9
    return None
