"""The same call on all ranks: the n-th kernel of a name on each of them."""

import numpy as np

from htk.columns.groups import Groups
from htk.columns.types import Ints
from htk.whatif.step_model import StepModel


def same_calls(model: StepModel) -> Groups:
    """Group activities by name and how many of that name came before on their rank."""
    acts = model.graph.activities
    nth = _nth(Groups.by_keys(np.column_stack([acts.rank, acts.name])))
    return Groups.by_keys(np.column_stack([acts.name, nth]))


def _nth(groups: Groups) -> Ints:
    """Return how many rows of the same group came before each."""
    order = np.argsort(groups.group_ids, kind="stable")
    first = np.cumsum(groups.count) - groups.count
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - first[groups.group_ids[order]]
    return nth
