"""The same call on all ranks: the n-th kernel of a name, grid and shapes on each of them."""

from htk.base.columns.groups import Groups
from htk.whatif.step_model import StepModel


def same_calls(model: StepModel) -> Groups:
    """Group activities by name, size and how many like it came before on their rank: stages of a
    pipeline call one kernel for work of other sizes."""
    acts = model.graph.activities
    like = [acts.name, model.facts.grid.codes, model.facts.dims.codes]
    of_rank = Groups.by_keys([acts.rank, *like])
    return Groups.by_keys([*like, of_rank.rank_within()])
