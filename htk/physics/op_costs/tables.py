"""FBGEMM's embedding tables, what permutes their features, and its narrow numbers for the network.

Lookups in many tables are one call; a row is added up, or written, for each index, and read once.
Which index is of which table no shape tells, so with several tables rows are of their mean width.
That width is `total_D` over the tables where values were recorded; else that of the gradient of the
bags; else what the state of row-wise optimizers tells, which has one element for each row.
"""

from typing import NamedTuple

from htk.physics.op_costs.call import Cost, Model, OperatorCall, dtype_of, label_type

_STATE = (20, 21)  # the optimizer's first moment, on the device and in unified memory
_SCALES = 8  # bytes beside each row of FP8: its scale, padded


class _Places(NamedTuple):
    """Where a lookup's arguments stand."""

    weights: tuple[int, ...]  # on the device, in unified memory
    row_offsets: int  # of tables: one more than there are
    total_width: int
    indices: int
    offsets: int
    pooling: int
    factors: int


_SPLIT = _Places((1, 2), 6, 7, 11, 12, 13, 14)
_DENSE = _Places((0,), 2, 3, 7, 8, 9, 10)


class _Lookup:
    """One call: rows of tables, picked by indices and added up to bags."""

    def __init__(self, call: OperatorCall) -> None:
        places = _DENSE if "dense" in call.name.lower() else _SPLIT
        self.call = call
        self.weights = max((call.tensor(n) for n in places.weights), key=lambda t: t.count)
        self.tables = call.tensor(places.row_offsets).count - 1
        self.index = call.tensor(places.indices)
        self.offsets = call.tensor(places.offsets)
        self.factors = call.maybe(places.factors)
        pooled = call.value(places.pooling) != 2  # 2: no pooling
        self.bags = self.offsets.count - 1 if pooled else self.index.count
        self.width = self._measure_width(call.value(places.total_width))
        self.elements = min(self.index.count * self.width, self.weights.count)

    def _measure_width(self, total: object) -> float:
        """Return the elements of a row, a mean over tables."""
        if isinstance(total, int):
            return total / self.tables
        gradient = self.call.tensors[-1]
        if len(gradient.shape) == 2 and gradient.shape[0] * self.tables == self.bags:
            return gradient.shape[-1] / self.tables  # of all tables' bags
        if "rowwise" not in self.call.name:
            raise LookupError(f"{self.call.name} tells no width of its rows")
        elements = sum(self.call.tensor(n).count for n in _SPLIT.weights)
        return elements / sum(self.call.tensor(n).count for n in _STATE)


_STATE_NUMBERS = {  # of an optimizer: for each element, for each row
    "adagrad": (1, 0),
    "rowwise_adagrad": (0, 1),
    "rowwise_weighted_adagrad": (0, 1),
    "adam": (2, 0),
    "partial_rowwise_adam": (1, 1),
    "lamb": (2, 0),
}


def _cost_lookup(call: OperatorCall) -> Cost:
    lookup = _Lookup(call)
    read = lookup.elements * lookup.weights.element + lookup.index.bytes + lookup.offsets.bytes
    read += lookup.factors.bytes if lookup.factors is not None else 0
    flops = lookup.index.count * lookup.width * (2 if lookup.factors is not None else 1)
    assumed = "rows of mean width" if lookup.tables > 1 else None
    moved = round(read + 4 * lookup.bags * lookup.width)
    return Cost(round(flops), moved, "embedding", label_type(lookup.weights.type), assumed=assumed)


def _lookup_backward(call: OperatorCall) -> Cost:
    """By the arguments of the forward call: gradients of bags in, rows of the tables updated, each
    row once; with them the optimizer's state. Dense tables have no optimizer there: their rows'
    gradients are written.
    """
    lookup = _Lookup(call)
    optimizer = call.name.partition("_Op")[0].partition("LookupFunction_")[2]
    of_element, of_row = _STATE_NUMBERS.get(optimizer, (0, 0))
    state = of_element * lookup.elements + of_row * lookup.elements / lookup.width
    times = 1 if optimizer == "Dense" else 2
    moved = 4 * lookup.bags * lookup.width + lookup.index.bytes + lookup.offsets.bytes
    moved += times * lookup.elements * lookup.weights.element + 2 * 4 * state
    flops = lookup.index.count * lookup.width
    flops += 4 * lookup.elements if optimizer != "Dense" else 0
    assumed = "arguments of the forward call; no row twice"
    dtype = label_type(lookup.weights.type)
    return Cost(round(flops), round(moved), "embedding", dtype, assumed=assumed)


def _cost_moved_bytes(call: OperatorCall, moved: float) -> Cost:
    return Cost(0, round(moved), "copy", label_type(dtype_of(call.tensors)))


def _cost_read_and_write(call: OperatorCall) -> Cost:
    return _cost_moved_bytes(call, 2 * call.tensor(0).bytes)


def _cost_permute(call: OperatorCall) -> Cost:
    """Order, lengths [features, batch], values: features may come more than once."""
    order = call.tensor(0)
    lengths = call.tensor(1)
    values = call.tensor(2)
    factors = call.maybe(3)
    moved = lengths.bytes + values.bytes + (factors.bytes if factors is not None else 0)
    cost = _cost_moved_bytes(call, 2 * moved * order.count / max(lengths.shape[0], 1))
    return Cost(0, cost.bytes, "copy", cost.dtype, assumed="values alike over features")


def _check_tables(call: OperatorCall) -> Cost:
    """Return the rows of tables, indices, offsets: read."""
    return _cost_moved_bytes(call, sum(call.tensor(n).bytes for n in range(3)))


def _to_fp8_rows(call: OperatorCall) -> Cost:
    wide = call.tensor(0)
    return _cost_moved_bytes(call, wide.bytes + wide.count + wide.count // wide.shape[-1] * _SCALES)


def _from_fp8_rows(call: OperatorCall) -> Cost:
    narrow = call.tensor(0)
    rows = narrow.count // narrow.shape[-1]
    return _cost_moved_bytes(call, narrow.bytes + 4 * (narrow.count - rows * _SCALES))


def _to_byte(call: OperatorCall) -> Cost:
    return _cost_moved_bytes(call, call.tensor(0).bytes + call.tensor(0).count)


def _from_byte(call: OperatorCall) -> Cost:
    return _cost_moved_bytes(call, call.tensor(0).bytes + 4 * call.tensor(0).count)


_OPTIMIZERS = "sgd adagrad rowwise_adagrad rowwise_weighted_adagrad adam partial_rowwise_adam lamb"
_DENSE_LOOKUP = "fbgemm::dense_embedding_codegen_lookup_function"
FORWARD = {  # the forward call whose arguments tell what a node of autograd does
    f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>": (
        f"fbgemm::split_embedding_codegen_lookup_{name}_function"
    )
    for name in _OPTIMIZERS.split()
} | {"torch::autograd::CppNode<SplitLookupFunction_Dense_Op>": _DENSE_LOOKUP}
_PERMUTED = "autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::"
MODELS: dict[str, Model] = {
    **{
        f"fbgemm::split_embedding_codegen_lookup_{name}_function": _cost_lookup
        for name in _OPTIMIZERS.split()
    },
    **dict.fromkeys(
        (f"fbgemm::permute_{n}" for n in ("sparse_features", "2D_sparse_data", "1D_sparse_data")),
        _cost_permute,
    ),
    **{
        f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>": _lookup_backward
        for name in _OPTIMIZERS.split()
    },
    _DENSE_LOOKUP: _cost_lookup,
    "torch::autograd::CppNode<SplitLookupFunction_Dense_Op>": _lookup_backward,
    "fbgemm::bounds_check_indices": _check_tables,
    "fbgemm::asynchronous_complete_cumsum": _cost_read_and_write,
    "fbgemm::permute_pooled_embs": _cost_read_and_write,
    "fbgemm::permute_pooled_embs_auto_grad": _cost_read_and_write,
    f"torch::{_PERMUTED}permute_pooled_embs_gpu> >": _cost_read_and_write,
    "fbgemm::recat_embedding_grad_output_mixed_D_batch": _cost_read_and_write,
    "fbgemm::FloatToFP8RowwiseQuantized": _to_fp8_rows,
    "fbgemm::FP8RowwiseQuantizedToFloat": _from_fp8_rows,
    "fbgemm::FloatToHFP8Quantized": _to_byte,
    "fbgemm::HFP8QuantizedToFloat": _from_byte,
}
