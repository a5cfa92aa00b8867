"""What ranks of a group share, by its description: mesh_tp, CONTEXT_PARALLEL_GROUP."""

import re

import numpy as np

from htk.base.columns.types import Mask
from htk.whatif.step_model import StepModel

_DESCRIBED = {
    "tensor": re.compile(r"(^|[^a-z])(tensor|tp)([^a-z]|$)", re.I),
    "context": re.compile(r"(^|[^a-z])(context|cp)([^a-z]|$)", re.I),
    "pipeline": re.compile(r"(^|[^a-z])(pipeline|pp|stage)([^a-z]|$)", re.I),
    "expert": re.compile(r"(^|[^a-z])(expert|ep)$|expert_model|expert_parallel", re.I),
}
_MESSAGES = ("send", "recv", "send_recv")


def described_as(model: StepModel, kind: str) -> Mask:
    """Return the communication of groups that are described as tensor, context, pipeline or
    expert parallel."""
    return model.is_comm & model.facts.group_kind.where(_DESCRIBED[kind].search)


def described_degree(model: StepModel, kind: str) -> int | None:
    """Return the ranks of such a group; 1: there is none; None: messages or exchanges without a
    description may be of one."""
    groups = described_as(model, kind)
    if groups.any():
        return int(model.facts.group_size[groups].max(initial=1))
    unnamed = model.is_collective(*_MESSAGES)
    if kind in ("context", "expert"):
        unnamed |= model.is_collective("all_to_all") & (model.facts.group_size > 1)
    others = np.zeros(len(unnamed), bool)
    for other in _DESCRIBED:
        others |= described_as(model, other)
    return None if (unnamed & ~others).any() else 1
