"""FBGEMM's embedding tables, what permutes their features, and its narrow numbers for the network.

Lookups in many tables are one call; a row is added up, or written, for each index, and read once.
Which index is of which table no shape tells, so with several tables rows are of their mean width.
That width is `total_D` over the tables where values were recorded; else what the state of row-wise
optimizers tells, which has one element for each row.
"""

from htk.models.op_costs.call import Cost, Model, OperatorCall, dtype_of, label

_WEIGHTS = (1, 2)  # on the device, in unified memory
_STATE = (20, 21)  # the optimizer's first moment, in the same places
_SCALES = 8  # bytes beside each row of FP8: its scale, padded


def _lookup(call: OperatorCall) -> Cost:
    """weights …, D_offsets (6), total_D, …, indices (11), offsets, pooling, weights of indices."""
    weights = max((call.tensor(n) for n in _WEIGHTS), key=lambda t: t.count)
    tables = call.tensor(6).count - 1
    index, offsets = call.tensor(11), call.tensor(12)
    width = _width(call, tables)
    bags = index.count if call.value(13) == 2 else offsets.count - 1  # 2: no pooling
    factors = call.maybe(14)
    elements = min(index.count * width, weights.count)
    read = elements * weights.element + index.bytes + offsets.bytes
    read += factors.bytes if factors is not None else 0
    flops = index.count * width * (2 if factors is not None else 1)
    assumed = "rows of mean width" if tables > 1 else None
    moved = round(read + 4 * bags * width)
    return Cost(round(flops), moved, "embedding", label(weights.type), assumed=assumed)


def _lookup_backward(call: OperatorCall) -> Cost:
    """By the arguments of the forward call: gradients of bags in, rows of the tables updated, each
    row once; with them the optimizer's state, of one number a row or of one (Adam: two) an element.
    """
    forward = _lookup(call)
    weights = max((call.tensor(n) for n in _WEIGHTS), key=lambda t: t.count)
    index, offsets = call.tensor(11), call.tensor(12)
    tables = call.tensor(6).count - 1
    width = _width(call, tables)
    bags = index.count if call.value(13) == 2 else offsets.count - 1
    elements = min(index.count * width, weights.count)
    state = elements / width if "rowwise" in call.name else elements
    numbers = {"sgd": 0, "adam": 2, "lamb": 2}.get(call.name.partition("_Op")[0].split("_")[-1], 1)
    moved = 4 * bags * width + index.bytes + offsets.bytes
    moved += 2 * elements * weights.element + 2 * 4 * numbers * state
    flops = index.count * width + 4 * elements
    assumed = "arguments of the forward call; no row twice"
    return Cost(round(flops), round(moved), "embedding", forward.dtype, assumed=assumed)


def _width(call: OperatorCall, tables: int) -> float:
    """Return the elements of a row, a mean over tables."""
    total = call.value(7)
    if isinstance(total, int):
        return total / tables
    if "CppNode" in call.name and call.value(13) != 2:
        return call.tensors[-1].shape[-1] / tables  # the gradient's: of all tables' bags
    if "rowwise" not in call.name:
        raise LookupError(f"{call.name} tells no width of its rows")
    elements = sum(call.tensor(n).count for n in _WEIGHTS)
    return elements / sum(call.tensor(n).count for n in _STATE)


def _moved(call: OperatorCall, moved: float) -> Cost:
    return Cost(0, round(moved), "copy", label(dtype_of(call.tensors)))


def _twice(call: OperatorCall) -> Cost:
    return _moved(call, 2 * call.tensor(0).bytes)


def _permute(call: OperatorCall) -> Cost:
    """Order, lengths [features, batch], values: features may come more than once."""
    order, lengths, values = (call.tensor(n) for n in range(3))
    factors = call.maybe(3)
    moved = lengths.bytes + values.bytes + (factors.bytes if factors is not None else 0)
    cost = _moved(call, 2 * moved * order.count / max(lengths.shape[0], 1))
    return Cost(0, cost.bytes, "copy", cost.dtype, assumed="values alike over features")


def _checked(call: OperatorCall) -> Cost:
    """Return the rows of tables, indices, offsets: read."""
    return _moved(call, sum(call.tensor(n).bytes for n in range(3)))


def _to_fp8_rows(call: OperatorCall) -> Cost:
    wide = call.tensor(0)
    return _moved(call, wide.bytes + wide.count + wide.count // wide.shape[-1] * _SCALES)


def _from_fp8_rows(call: OperatorCall) -> Cost:
    narrow = call.tensor(0)
    rows = narrow.count // narrow.shape[-1]
    return _moved(call, narrow.bytes + 4 * (narrow.count - rows * _SCALES))


def _to_byte(call: OperatorCall) -> Cost:
    return _moved(call, call.tensor(0).bytes + call.tensor(0).count)


def _from_byte(call: OperatorCall) -> Cost:
    return _moved(call, call.tensor(0).bytes + 4 * call.tensor(0).count)


_OPTIMIZERS = "sgd adagrad rowwise_adagrad rowwise_weighted_adagrad adam partial_rowwise_adam lamb"
FORWARD = {  # the forward call whose arguments tell what a node of autograd does
    f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>": (
        f"fbgemm::split_embedding_codegen_lookup_{name}_function"
    )
    for name in _OPTIMIZERS.split()
}
_PERMUTED = "autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::"
MODELS: dict[str, Model] = {
    **{
        f"fbgemm::split_embedding_codegen_lookup_{name}_function": _lookup
        for name in _OPTIMIZERS.split()
    },
    **dict.fromkeys(
        (f"fbgemm::permute_{n}" for n in ("sparse_features", "2D_sparse_data", "1D_sparse_data")),
        _permute,
    ),
    **{
        f"torch::autograd::CppNode<SplitLookupFunction_{name}_Op>": _lookup_backward
        for name in _OPTIMIZERS.split()
    },
    "fbgemm::bounds_check_indices": _checked,
    "fbgemm::asynchronous_complete_cumsum": _twice,
    "fbgemm::permute_pooled_embs": _twice,
    "fbgemm::permute_pooled_embs_auto_grad": _twice,
    f"torch::{_PERMUTED}permute_pooled_embs_gpu> >": _twice,
    "fbgemm::recat_embedding_grad_output_mixed_D_batch": _twice,
    "fbgemm::FloatToFP8RowwiseQuantized": _to_fp8_rows,
    "fbgemm::FP8RowwiseQuantizedToFloat": _from_fp8_rows,
    "fbgemm::FloatToHFP8Quantized": _to_byte,
    "fbgemm::HFP8QuantizedToFloat": _from_byte,
}
