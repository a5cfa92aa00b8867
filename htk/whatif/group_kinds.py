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


def between_stages(model: StepModel) -> Mask:
    """Return the communication between stages of a pipeline: of groups that are described so, or
    else messages of groups without a description, of ranks that run unlike operators (one looks up
    tokens, another has the loss)."""
    return model.once("between stages", lambda: _between_stages(model))


def _between_stages(model: StepModel) -> Mask:
    described = described_as(model, "pipeline")
    messages = _mark_undescribed(model, model.is_collective(*_MESSAGES))
    if described.any() or not messages.any():
        return described
    ranks = model.graph.activities.rank[model.is_compute]
    operators = model.facts.op.codes[model.is_compute]
    ran = np.unique(np.column_stack([ranks, operators]), axis=0)
    ranks_of_operator = np.unique(ran[:, 1], return_counts=True)[1]
    is_alike = bool((ranks_of_operator == len(model.graph.ranks)).all())
    return np.zeros(len(messages), bool) if is_alike else messages


def described_degree(model: StepModel, kind: str) -> int | None:
    """Return the ranks of such a group; 1: there is none; None: messages or exchanges without a
    description may be of one, unless they are all that ranks of a pipeline send each other."""
    groups = described_as(model, kind)
    if groups.any():
        return int(model.facts.group_size[groups].max(initial=1))
    staged = between_stages(model)
    if kind != "expert" and staged.any() and (staged == model.is_comm).all():
        ranks = int(model.facts.group_size[staged].max())
        if ranks == len(model.graph.ranks):  # one pipeline
            return ranks if kind == "pipeline" else 1
    unnamed = model.is_collective(*_MESSAGES)
    if kind in ("context", "expert"):
        unnamed |= model.is_collective("all_to_all") & (model.facts.group_size > 1)
    return None if _mark_undescribed(model, unnamed).any() else 1


def _mark_undescribed(model: StepModel, chosen: Mask) -> Mask:
    """Return which of this communication is of groups without such a description."""
    for kind in _DESCRIBED:
        chosen = chosen & ~described_as(model, kind)
    return chosen
