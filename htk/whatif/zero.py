"""ZeRO's first two stages, from data parallelism without shards.

Gradients are reduced to the rank that owns them instead of to all, which sends half as much; each
rank's optimizer works on its own part; what it has updated is gathered before the next step, which
nothing hides. The second stage frees gradients that a rank does not own: memory, not time.
"""

from htk.whatif.data_groups import data_network
from htk.whatif.parallelism import Sharded, mark_replicating, scale_optimizer
from htk.whatif.step_model import StepModel

STAGES = ("zero1", "zero2")


def to_zero(model: StepModel, now: Sharded) -> StepModel:
    """Return the step with the state of its optimizer spread over all ranks."""
    net = data_network(model)
    ranks = now.world
    reduces = mark_replicating(model)
    size = model.facts.in_bytes
    latency = net.group_latency(ranks)
    pace = net.pace(ranks, net.in_node(ranks))
    saved = (ranks - 1) / ranks * size * pace  # of twice as much
    length = model.lengths()
    rest = (length - latency).clip(0) / 2
    changed = model.with_lengths(reduces, length - saved.clip(0, rest))
    gathered = latency + (ranks - 1) / ranks * now.reduced_bytes * pace
    changed = scale_optimizer(changed, 1 / ranks).add_step_time(
        "gather", gathered, exposed=gathered
    )
    return changed.with_assumption(
        f"parameters are gathered once after the optimizer, {gathered / 1e6:.2f} ms that nothing "
        "hides, in the type in which gradients are reduced"
    )
