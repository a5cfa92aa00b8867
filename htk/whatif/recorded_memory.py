"""What a recording shows of its memory: the model's sizes, the layout, the peak, the GPU's size."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts
from htk.base.columns.groups import Groups
from htk.base.columns.types import Ints
from htk.base.mappings import NamedTables
from htk.physics.detected import detect_gpu
from htk.physics.memory import Layout, ModelSize, layer_widths
from htk.physics.training_job import TrainingJob
from htk.whatif.edits.loss import is_fused
from htk.whatif.from_one_rank import parameter_gradients, widest_table
from htk.whatif.memory import Held, layout_of
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.operator_shapes import list_matrices, operator_shapes
from htk.whatif.parallelism import Sharded, find_replicated, find_sharded, mark_replicating
from htk.whatif.recorded_job import LENGTH_SECOND, recorded_job
from htk.whatif.recorded_peaks import recorded_peaks
from htk.whatif.shapes import read_inputs
from htk.whatif.step_model import StepModel

_GATED_FFN, _PLAIN_FFN = 8 / 3, 4.0  # times the width of the model, where units do not tell


@dataclass(frozen=True)
class _Shapes:
    """What shapes of operators tell of the layers of one rank; 0: nothing."""

    layers: int = 0
    tokens: int = 0
    length: int = 0  # of a sequence
    width: int = 0  # of queries
    kv_width: int = 0
    heads: int = 0
    vocab: int = 0
    gated: bool = True
    flash: bool = True


def read_held_memory(tables: NamedTables, model: StepModel) -> Held | None:
    """None: neither allocations nor enough shapes were recorded."""
    job = recorded_job(model)
    parameters = (
        find_sharded(model)
        or find_replicated(model)
        or _by_products(model, _find_element_bytes(job))
    )
    shapes = _read_shapes(model)
    stages = job.pipeline or 1
    if stages > 1 and shapes.width:  # the output is on another stage
        shapes = replace(shapes, vocab=widest_table(model) // max(_find_table_width(model), 1))
    if job.layers and shapes.layers:
        shapes = replace(shapes, layers=job.layers // stages)
    size = _build_model_size(parameters, shapes, job, _large_sums(model, shapes, job))
    like = Layout(
        checkpointing=_find_checkpointing(model), flash=shapes.flash, fused_loss=is_fused(model)
    )
    like = replace(like, micro_batch=shapes.tokens / max(shapes.length, 1), seq=shapes.length or 1)
    layout = layout_of(job, like)
    capacity = _read_capacity(tables["ranks"])
    units = parameters.unit_bytes if parameters else ()
    peaks = recorded_peaks(tables, read_inputs(model).tokens, units)
    if peaks is not None:
        return Held(size, layout, capacity, peaks, job.gpu)
    if not size.layer_parameters or not shapes.tokens:
        return None
    return Held(size, layout, capacity, gpu=job.gpu)


def _find_element_bytes(job: TrainingJob) -> int:
    """Return the bytes of a parameter, as gathered or reduced."""
    return 4 if job.is_single_precision else 2


def _by_products(model: StepModel, element: int) -> Sharded | None:
    """Return the parameters of a rank that shares them with none, by the gradients it makes."""
    elements = sum(n for _, n in parameter_gradients(model))
    return Sharded("ddp", 1, (), element * elements, np.zeros(0, bool)) if elements else None


def _large_sums(model: StepModel, shapes: _Shapes, job: TrainingJob) -> int:
    """Return how many matrices of the vocabulary a rank has: embedding and output, or one.

    Tensor parallelism gives each rank some of their rows, each as wide as the model.
    """
    if not shapes.vocab:
        return 0
    each = [n for _, n in parameter_gradients(model)]
    elements = shapes.vocab * shapes.width * (job.tensor or 1)
    if find_sharded(model) is None and find_replicated(model) is None:
        return sum(n >= elements for n in each)
    first = model.graph.activities.rank == model.graph.ranks[0]
    least = _find_element_bytes(job) * elements
    large = mark_replicating(model) & first & (model.facts.in_bytes >= least)
    matrices_made = sum(n == elements for n in each)  # a bucket may be as large
    return min(int(large.sum()), matrices_made or 2, 2)


def _build_model_size(
    parameters: Sharded | None, shapes: _Shapes, job: TrainingJob, ends: int
) -> ModelSize:
    """Sizes of the whole model; collectives and shapes are those of a rank of its first stage.

    `ends`: matrices of the vocabulary, where nothing else tells what is in no layer.
    """
    tensor = job.tensor or 1
    outside = ends * shapes.vocab * shapes.width * tensor
    layers, layer, root = _count_parameters(
        parameters, shapes.layers, outside, _find_element_bytes(job)
    )
    hidden = shapes.width * tensor
    kv_width = shapes.kv_width * tensor
    ways = 3 if shapes.gated else 2
    attention = 2 * hidden * (hidden + kv_width)
    usual = (_GATED_FFN if shapes.gated else _PLAIN_FFN) * hidden
    ffn = (layer * tensor - attention) / (ways * hidden) if hidden else 0.0
    widths = layer_widths(hidden, kv_width, ffn if ffn > 0 else usual, shapes.gated)
    return ModelSize(
        layers * (job.pipeline or 1),
        layer * tensor,
        root * tensor,
        min(shapes.vocab * tensor * hidden, root * tensor),
        hidden,
        shapes.heads * tensor,
        *widths,
        shapes.vocab * tensor,
    )


def _count_parameters(
    now: Sharded | None, layers: int, outside: int, element: int
) -> tuple[int, float, float]:
    """Layers, parameters of one, and those in no layer, as units or reduced gradients tell."""
    if now is None:
        return layers, 0.0, 0.0
    if not now.unit_bytes:  # nothing tells layers from the rest
        every = now.reduced_bytes / element
        root = float(outside) if outside < every else 0.0
        return max(layers, 1), (every - root) / max(layers, 1), root
    layer = float(np.median(now.unit_bytes))
    alike = sum(abs(unit - layer) <= 0.05 * layer for unit in now.unit_bytes)
    if 0 < layers < len(now.unit_bytes):  # behind what is in none, which may be as large as one
        layer, alike = float(np.median(now.unit_bytes[-layers:])), layers
    root = max(sum(now.unit_bytes) - alike * layer, 0.0)
    return alike, layer / element, root / element


def _find_checkpointing(model: StepModel) -> str:
    """Full where attention runs again for the backward pass, selective where only other work."""
    again = model.facts.recomputed & model.is_compute
    if not again.any():
        return "none"
    attention = model.facts.family.isin("attention")
    return "selective" if (attention & ~again).any() and not (attention & again).any() else "full"


def _read_shapes(model: StepModel) -> _Shapes:
    tokens = read_inputs(model).tokens
    first = model.graph.ranks[0]
    of_rank = (model.graph.activities.rank == first) & ~model.facts.recomputed
    layers = 0
    widths = set[int]()
    query, key, length, heads = 0, 0, 0, 0
    gated = False
    softmax = 0
    for op, dims, count in _count_kinds(model, np.flatnonzero(of_rank)):
        gated |= op.startswith("aten::silu")
        if not dims or not ("attention" in op or op.endswith(("::mm", "::addmm", "_softmax"))):
            continue
        shapes = [shape for shape in operator_shapes(dims) if len(shape) > 1]
        if "mm" in op:
            widths |= {n for s in shapes for n in s if n != tokens}
        elif op.endswith("_softmax"):
            if shapes and len(shapes[0]) == 4:
                softmax += count
                heads, length = shapes[0][1:3]
        elif "backward" not in op and tokens and shapes and len(shapes[0]) == 4:
            layers += count
            query = int(np.prod(shapes[0])) // tokens
            key = int(np.prod(shapes[1])) // tokens if len(shapes) > 1 else query
            where = 1 if LENGTH_SECOND.match(op) else 2
            length = shapes[0][where]
            heads = shapes[0][3 - where]
    if softmax and not layers and tokens:  # attention in parts; as many heads of keys
        layers, query = softmax, _find_table_width(model)
        key = query
    layers //= max(micro_batches(model), 1)
    if tokens is None or not layers:
        return _Shapes()
    widest = max(widths, default=0)
    vocab = widest if widest > 4 * query else 0
    words = widest_table(model) // max(_find_table_width(model), 1)
    if words in widths:  # the output is as wide as the table of embeddings is long
        vocab = words
    return _Shapes(layers, tokens, length, query, key, heads, vocab, gated, not softmax)


def _find_table_width(model: StepModel) -> int:
    """Return the columns of the table that tokens are looked up in; 0: none is seen."""
    ops = model.facts.tables["cpu_ops"]
    rows = np.flatnonzero(match_texts(ops["name"], lambda name: name == "aten::embedding"))
    tables = [list_matrices(dims) for dims in set(ops["input_dims"].take(rows).to_pylist())]
    return max((shapes[0][1] for shapes in tables if shapes), default=0)


def _count_kinds(model: StepModel, rows: Ints) -> list[tuple[str, str | None, int]]:
    """Return the distinct operators and shapes of activities, in the order of the last of each, and
    how many each has."""
    op = model.facts.op
    dims = model.facts.dims
    kinds = Groups.by_keys([op.codes[rows], dims.codes[rows]])
    last = np.empty(len(kinds), np.int64)
    last[kinds.group_ids] = np.arange(len(rows))
    order = np.argsort(last)
    pairs = zip(kinds.keys[order].tolist(), kinds.count[order].tolist(), strict=True)
    return [(op.distinct[a] or "", dims.distinct[b], count) for (a, b), count in pairs]


def _read_capacity(ranks: pa.Table) -> float | None:
    """Memory of a GPU, as recorded, else by its name."""
    for name, text in zip(
        ranks["device_name"].to_pylist(), ranks["device_properties"].to_pylist(), strict=True
    ):
        try:
            properties = json.loads(text or "[]")
            return float(properties[0]["totalGlobalMem"])
        except (ValueError, LookupError, TypeError):
            device = detect_gpu(name)
            if device:
                return device.memory_bytes
    return None
