"""The same call on all ranks: the n-th kernel of a name on each of them."""

from htk.base.columns.groups import Groups
from htk.whatif.step_model import StepModel


def same_calls(model: StepModel) -> Groups:
    """Group activities by name and how many of that name came before on their rank."""
    acts = model.graph.activities
    of_rank = Groups.by_keys([acts.rank, acts.name])
    return Groups.by_keys([acts.name, of_rank.rank_within()])
