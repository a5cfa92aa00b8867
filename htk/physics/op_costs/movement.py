"""Moving and making data: bytes alone. Of what is indexed only the chosen part is read."""

import math

from htk.physics.op_costs.call import (
    Cost,
    Model,
    OperatorCall,
    Tensor,
    broadcast_shapes,
    dtype_of,
    label_type,
)


def _cost_moved_bytes(call: OperatorCall, bytes_: int, kind: str | None = None) -> Cost:
    name = kind or dtype_of(call.tensors)
    assumed = "element type" if call.guessed else None
    return Cost(0, bytes_, "copy", label_type(name), assumed=assumed)


def _cost_copy(call: OperatorCall) -> Cost:
    """Into the first from the second, which may be of another type, or broadcast."""
    return _cost_moved_bytes(call, call.tensor(0).bytes + call.tensor(1).bytes)


def _cost_read_and_write(call: OperatorCall) -> Cost:
    return _cost_moved_bytes(call, 2 * call.tensor(0).bytes)


def _cost_fill(call: OperatorCall) -> Cost:
    return _cost_moved_bytes(call, call.tensor(0).bytes)


def _cost_join(call: OperatorCall) -> Cost:
    parts = call.listed(0)
    return _cost_moved_bytes(call, 2 * sum(t.bytes for t in parts), parts[0].type)


def _cost_cat(call: OperatorCall) -> Cost:
    """tensors, dim, out: of lists that were recorded without shapes the result tells, `out` or its
    gradient. What stands before the list is of no meaning (TorchScript records its whole stack)."""
    result = call.maybe(2)
    if call.arguments[0] == () and result is not None:
        return _cost_moved_bytes(call, 2 * result.bytes, result.type)
    return _cost_join(call)


def _index_select(call: OperatorCall) -> Cost:
    """self, dim, index."""
    base = call.tensor(0)
    index = call.tensor(2)
    axis = int(call.value(1, 0)) % max(len(base.shape), 1)
    picked = base.count // max(base.shape[axis], 1) * index.count if base.shape else 1
    return _cost_moved_bytes(call, 2 * picked * base.element + index.bytes, base.type)


def _cost_gather(call: OperatorCall) -> Cost:
    """self, dim, index: as many as the index."""
    base = call.tensor(0)
    index = call.tensor(2)
    return _cost_moved_bytes(call, 2 * index.count * base.element + index.bytes, base.type)


def _cost_scatter(call: OperatorCall) -> Cost:
    """self, dim, index, source: what is added to is read too."""
    base = call.tensor(0)
    index = call.tensor(2)
    added = 3 if "add" in call.name or "reduce" in call.name else 2
    in_place = call.name.endswith("_")
    copied = 0 if in_place else 2 * base.bytes
    return _cost_moved_bytes(
        call, copied + added * index.count * base.element + index.bytes, base.type
    )


def _index_add(call: OperatorCall) -> Cost:
    """self, dim, index, source."""
    base = call.tensor(0)
    source = call.tensor(3)
    copied = 0 if call.name.endswith("_") else 2 * base.bytes
    return _cost_moved_bytes(call, copied + 3 * source.bytes + call.tensor(2).bytes, base.type)


def _count_picked(base: Tensor, indices: tuple[Tensor, ...]) -> int:
    """Return the elements that a list of indices picks, the first axes being indexed."""
    where = math.prod(broadcast_shapes([i.shape for i in indices]))
    return where * math.prod(base.shape[len(indices) :])


def _cost_index(call: OperatorCall) -> Cost:
    """Without the shapes of indices the gradient of the result tells how many were picked."""
    base = call.tensor(0)
    result = call.maybe(2)
    if call.arguments[1] is None and result is not None:
        return _without_indices(2 * result.bytes, base.type)
    indices = call.listed(1)
    read = sum(8 * i.count for i in indices)
    return _cost_moved_bytes(
        call, 2 * _count_picked(base, indices) * base.element + read, base.type
    )


def _without_indices(moved: int, kind: str) -> Cost:
    return Cost(0, moved, "copy", label_type(kind), assumed="bytes without those of the indices")


def _index_put(call: OperatorCall) -> Cost:
    """Without the shapes of indices a place for each value is assumed."""
    base = call.tensor(0)
    values = call.maybe(2)
    times = 3 if call.value(3) is True else 2  # accumulated: what lies there is read too
    if call.arguments[1] is None and values is not None and values.count > 1:
        return _without_indices(times * values.bytes, base.type)
    indices = call.listed(1)
    read = sum(8 * i.count for i in indices)
    return _cost_moved_bytes(
        call, times * _count_picked(base, indices) * base.element + read, base.type
    )


def _cost_embedding(call: OperatorCall) -> Cost:
    weight = call.tensor(0)
    index = call.tensor(1)
    picked = index.count * weight.shape[-1]
    return _cost_moved_bytes(call, 2 * picked * weight.element + index.bytes, weight.type)


def _embedding_bag(call: OperatorCall) -> Cost:
    """weight, indices, offsets: a row is written for each bag."""
    weight = call.tensor(0)
    index = call.tensor(1)
    bags = call.tensor(2)
    rows = index.count + bags.count
    moved = rows * weight.shape[-1] * weight.element + index.bytes + bags.bytes
    return Cost(index.count * weight.shape[-1], moved, "copy", label_type(weight.type))


def _embedding_backward(call: OperatorCall) -> Cost:
    """gradient, indices, rows of the weight: all rows are written."""
    gradient = call.tensor(0)
    index = call.tensor(1)
    written = int(call.value(2, 0)) * gradient.shape[-1] * gradient.element
    moved = gradient.bytes + index.bytes + written
    return Cost(gradient.count, moved, "copy", label_type(gradient.type))


def _cost_repeat(call: OperatorCall) -> Cost:
    base = call.tensor(0)
    times = call.value(1)
    many = math.prod(times) if isinstance(times, list) else 1
    return _cost_moved_bytes(call, base.bytes + many * base.bytes)


def _cost_pad(call: OperatorCall) -> Cost:
    base = call.tensor(0)
    added = call.value(1)
    if not isinstance(added, list):
        raise LookupError("padding is not recorded")
    sizes = list(base.shape)
    for k in range(len(added) // 2):  # pairs from the last axis on
        sizes[-1 - k] += int(added[2 * k]) + int(added[2 * k + 1])
    return _cost_moved_bytes(call, base.bytes + math.prod(sizes) * base.element)


def _chunk_cat(call: OperatorCall) -> Cost:
    """Tensors of a list, into the buffer of a reduce-scatter, which may be of a wider type."""
    parts = call.listed(0)
    into = call.maybe(3)
    read = sum(t.bytes for t in parts)
    return _cost_moved_bytes(call, read + (into.bytes if into is not None else read), parts[0].type)


def _cache_write(call: OperatorCall) -> Cost:
    """key, value, into the pages of a cache."""
    new = call.tensors[:2]
    cache = call.tensor(2)
    moved = sum(t.bytes + t.count * cache.element for t in new)
    return _cost_moved_bytes(call, moved, new[0].type)


def _cost_one_number(call: OperatorCall) -> Cost:
    """Return one number, to the host."""
    return _cost_moved_bytes(call, call.tensor(0).element)


_TWICE = (
    "clone contiguous _to_copy to roll flip rot90 tril triu tril_ triu_ repeat_interleave "
    "masked_select pixel_shuffle channel_shuffle im2col col2im _conj_physical nonzero "
    "select_backward slice_backward diagonal_copy view_copy permute_copy transpose_copy"
)
_FILLS = "fill_ zero_ ones zeros full arange eye normal_ uniform_ random_ bernoulli_ exponential_"
FORWARD = {  # the forward call whose result a node of autograd is given the gradient of
    **{f"{node}Backward{n}": f"aten::{call}" for node, call in
       (("Cat", "cat"), ("Stack", "stack"), ("Index", "index")) for n in ("", "0")},
}  # fmt: skip
# Callers that give all of the gradient that they are given to such a call: torchrec orders it by
# ranks before it sends it.
CALLERS = {"All2All_Pooled_WaitBackward": "aten::cat"}
MODELS: dict[str, Model] = {
    "aten::copy_": _cost_copy,
    "aten::_local_scalar_dense": _cost_one_number,
    "fbgemm::jagged_to_padded_dense": _cost_read_and_write,
    "aten::_copy_from": _cost_copy,
    **{f"aten::{n}": _cost_read_and_write for n in _TWICE.split()},
    **{f"aten::{n}": _cost_fill for n in _FILLS.split()},
    **dict.fromkeys(("aten::cat", "aten::_cat", "aten::stack", "aten::_stack"), _cost_cat),
    **dict.fromkeys(("aten::concat", "aten::hstack", "aten::vstack"), _cost_cat),
    "aten::index_select": _index_select,
    "aten::gather": _cost_gather,
    "aten::take": _cost_gather,
    **dict.fromkeys(
        (f"aten::{n}{e}" for n in ("scatter", "scatter_add", "scatter_reduce") for e in ("", "_")),
        _cost_scatter,
    ),
    "aten::index_add": _index_add,
    "aten::index_add_": _index_add,
    "aten::index_copy_": _index_add,
    "aten::index": _cost_index,
    "aten::index_put_": _index_put,
    "aten::_index_put_impl_": _index_put,
    "aten::embedding": _cost_embedding,
    "aten::_embedding_bag": _embedding_bag,
    "aten::embedding_dense_backward": _embedding_backward,
    "aten::repeat": _cost_repeat,
    "aten::constant_pad_nd": _cost_pad,
    **{f"aten::{n}_pad{k}d": _cost_pad for n in ("reflection", "replication") for k in (1, 2, 3)},
    "fsdp::split_with_sizes_copy": _cost_read_and_write,
    "aten::split_with_sizes_copy": _cost_read_and_write,
    "fsdp::chunk_cat": _chunk_cat,
    "aten::_chunk_cat": _chunk_cat,
    "fsdp::all_gather_copy_in": _cost_join,
    "_C_cache_ops::reshape_and_cache_flash": _cache_write,
    "_C_cache_ops::reshape_and_cache": _cache_write,
    "sglang::store_cache": _cache_write,
}
