"""A forward call and the backward node that it made, where one tells sizes that the other lacks.

Autograd numbers nodes as forward calls make them, and every operator bears the number that the
next node of its thread will have. So a call's node has the call's own number; where a call in C++
bears none, it is not less than the number of the operator before, and less than that of the next.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import match_texts, read_keys, read_numbers
from htk.base.columns.groups import Groups, row_of
from htk.base.columns.order import order_by
from htk.base.columns.segments import mark_heads
from htk.base.columns.types import NONE, Ints, fill_none, take_or
from htk.physics.op_costs import (
    CALLER_TELLS_RESULT,
    CONVOLUTIONS,
    NODE_TELLS_RESULT,
    forward_name,
)
from htk.quantities.measures.call_tree import labels_of


class ToldBy(NamedTuple):
    """The calls whose arguments, one after the other's, tell what each operator does."""

    first: Ints  # a node's forward call; else the operator itself
    second: Ints  # the node itself; of a call that lacks its result's size its node, or the node
    # that calls it; else NONE


def told_by(cpu_ops: pa.Table, parent: Ints) -> ToldBy:
    first = np.arange(cpu_ops.num_rows)
    second = fill_none(cpu_ops.num_rows)
    node, call = _nodes_and_calls(cpu_ops)
    names = cpu_ops["name"].take(pa.array(call)).to_pylist()
    lacks_result = np.array([name in NODE_TELLS_RESULT for name in names], bool)
    first[node] = call
    second[node] = node
    second[call[lacks_result]] = node[lacks_result]
    _tell_convolutions(cpu_ops, parent, call, node, second)
    called = _called_with_gradient(cpu_ops, parent)
    second[called] = np.where(second[called] == NONE, parent[called], second[called])
    return ToldBy(first, second)


def _tell_convolutions(
    cpu_ops: pa.Table, parent: Ints, call: Ints, node: Ints, second: Ints
) -> None:
    """Put the node, which tells the size of the result, beside each convolution whose stride and
    padding were not recorded, and those of a library that it calls."""
    convolution = match_texts(cpu_ops["name"], CONVOLUTIONS.__contains__)
    convolution &= ~match_texts(cpu_ops["concrete_inputs"], lambda values: len(values) > 2)
    is_wanted = convolution[call]
    second[call[is_wanted]] = node[is_wanted]
    for _ in range(2):  # convolution calls _convolution, which calls cudnn_convolution
        inner = np.flatnonzero(convolution & (second == NONE) & (parent != NONE))
        inner = inner[convolution[parent[inner]]]
        second[inner] = second[parent[inner]]


def _called_with_gradient(cpu_ops: pa.Table, parent: Ints) -> Ints:
    """Return the calls that a node of autograd gives all of its gradient to."""
    name, names = labels_of(cpu_ops["name"])
    codes = _code_names(names)
    called = np.array([codes.get(CALLER_TELLS_RESULT.get(n, ""), NONE) for n in names], np.int64)
    rows = np.flatnonzero(parent != NONE)
    return np.asarray(rows[called[name[parent[rows]]] == name[rows]])


def _code_names(names: list[str]) -> dict[str, int]:
    """Return the code of each name; what has none is no call of another's."""
    return {name: k for k, name in enumerate(names) if name}


def _nodes_and_calls(cpu_ops: pa.Table) -> tuple[Ints, Ints]:
    """Return nodes and the forward call that made each, where that is certain."""
    name, names = labels_of(cpu_ops["name"])
    code_of = _code_names(names)
    forward_code = np.array([code_of.get(forward_name(n) or "", NONE) for n in names], np.int64)
    wanted = forward_code[name]
    nodes = np.flatnonzero(wanted != NONE)
    if not len(nodes):
        return nodes, nodes
    rank = read_keys(cpu_ops["rank"])
    makes_nodes = np.zeros(len(names), bool)
    makes_nodes[wanted[nodes]] = True
    calls = np.flatnonzero(makes_nodes[name])
    low, high = _node_numbers(cpu_ops, rank, calls)
    calls = calls[high != NONE]
    low = low[high != NONE]
    high = high[high != NONE]
    sequence = read_keys(cpu_ops["sequence"])[nodes]
    groups = Groups.by_keys([rank[calls], name[calls]])
    segment = row_of(groups.keys, np.column_stack([rank[nodes], wanted[nodes]]))
    begun = _up_to(groups.group_ids, low, segment, sequence)
    ended = _up_to(groups.group_ids, high, segment, sequence - 1)
    only = (begun[0] - ended[0] == 1) & (segment != NONE)
    return _one_to_one(nodes[only], calls[(begun[1] - ended[1])[only]])


def _up_to(segment: Ints, value: Ints, wanted: Ints, limit: Ints) -> tuple[Ints, Ints]:
    """Return for each wanted segment and limit how many values do not exceed it, and the sum of
    their places."""
    order = order_by(segment, value)
    asked = order_by(wanted, limit)
    both = np.concatenate([segment, wanted]), np.concatenate([value, limit])
    asks = np.concatenate([np.zeros(len(order), bool), np.ones(len(asked), bool)])
    merged = order_by(both[0], both[1], asks)
    before = np.cumsum(~asks[merged])
    places = np.concatenate([[0], np.cumsum(order)])
    start = np.searchsorted(segment[order], wanted)
    total = np.empty(len(wanted), np.int64)
    total[merged[asks[merged]] - len(segment)] = before[asks[merged]]
    return total - start, places[total] - places[start]


def _one_to_one(node: Ints, call: Ints) -> tuple[Ints, Ints]:
    """Return the pairs whose call made no other node."""
    count = np.bincount(call, minlength=1)
    single = count[call] == 1
    return node[single], call[single]


def _node_numbers(cpu_ops: pa.Table, rank: Ints, calls: Ints) -> tuple[Ints, Ints]:
    """Return the least and the largest number that the node of each call can have, or NONE."""
    sequence = read_keys(cpu_ops["sequence"])
    sequence[read_numbers(cpu_ops["forward_thread"], 0) != 0] = NONE  # of the node that it runs
    own = sequence[calls]
    if (own != NONE).all():  # the others' tell nothing more
        return own, own
    process, _ = labels_of(cpu_ops["process"])
    thread, _ = labels_of(cpu_ops["thread"])
    order = order_by(rank, process, thread, read_numbers(cpu_ops["start_ns"]))
    lanes = np.cumsum(mark_heads(rank[order], process[order], thread[order]), dtype=np.int64)
    in_order = sequence[order]
    length = len(order)
    following = np.where(in_order != NONE, np.arange(length), length)
    following = np.append(np.minimum.accumulate(following[::-1])[::-1], length)[1:]  # after it
    previous = np.where(in_order != NONE, np.arange(length), NONE)
    previous = np.append(NONE, np.maximum.accumulate(previous))[:-1]
    high = _number_at(in_order, lanes, following) - 1
    high[high < 0] = NONE
    low = _number_at(in_order, lanes, previous)
    low = np.where((low == NONE) | (high == NONE), high, np.minimum(low, high))
    least = np.empty(length, np.int64)
    largest = np.empty(length, np.int64)
    least[order] = np.where(in_order != NONE, in_order, low)
    largest[order] = np.where(in_order != NONE, in_order, high)
    return least[calls], largest[calls]


def _number_at(sequence: Ints, lanes: Ints, position: Ints) -> Ints:
    """Return the number at a position, if that is of the same thread, or NONE."""
    there = np.where(take_or(lanes, position) == lanes, position, len(sequence))
    return take_or(sequence, there)
