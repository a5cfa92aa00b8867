"""Pipeline parallelism: stages hold a part of the layers each, and wait to be filled.

With p stages a step of m micro-batches takes m · t_last + (p-1)/v · t: the last stage, which alone
holds output and loss, works on all of them, once the first has come through the stages before it
and until the last has gone back. All ranks work on the same samples as before, so each pipeline has
p times as many micro-batches, each of which takes a pth of the layers' time on a stage.
"""

from dataclasses import replace

import numpy as np

from htk.base.core.humanize import pluralize_count
from htk.base.errors import UsageError
from htk.whatif.edit_arguments import parse_pairs, positive_integer
from htk.whatif.fsdp_units import compute_lane, find_layers
from htk.whatif.group_kinds import between_stages, described_degree
from htk.whatif.host_cost import remove_calls
from htk.whatif.micro_batch_count import micro_batches
from htk.whatif.micro_batches import MICRO_BATCHES, micro_batch
from htk.whatif.parallel import ELEMENT, activation_ns, fewer_replicas, read_sizes
from htk.whatif.step_model import StepModel

NAME = "pp"
HELP = "Stages of a pipeline: 4, stages=4,interleave=2, or 1 for none. Low confidence."


def apply(model: StepModel, value: str) -> StepModel:
    stages, chunks = stages_and_chunks(value)
    now = described_degree(model, "pipeline")
    if now is None:
        raise UsageError(f"{NAME}: whether the ranks are stages of a pipeline is not recorded")
    if stages == now:
        return model.with_assumption(f"there are {pluralize_count(now, 'stage')} already")
    if now > 1 and stages > 1:
        raise UsageError(f"{NAME} {stages} from {now} is not known to htk: take 1 or {now}")
    if now > 1:
        return _undo_pipeline(model, now)
    many = micro_batches(model)
    if not many:
        raise UsageError(f"{NAME}: no backward pass is seen in the step")
    of = read_sizes(model, NAME)
    sent = activation_ns(model, 2, ELEMENT * of.tokens * of.hidden)
    whole_ns = micro_batch(model).ns
    more = round(model.added.get(MICRO_BATCHES, 0) / whole_ns) if whole_ns else 0
    output = _outside_layers(model) * whole_ns
    stage_ns = (whole_ns - output) / stages
    uneven = (many + more) * (stages - 1) * output
    bubble = (stages - 1) / chunks * stage_ns
    filling = 2 * (stages - 1) * sent
    changed = fewer_replicas(model, stages)
    return (
        replace(
            changed.add_step_time(
                "bubble", bubble + uneven + filling, exposed=filling, idle=bubble + uneven
            ),
            low_confidence=True,
        )
        .with_uncertainty("structure", 0.1)
        .with_uncertainty("communication", 0.3)
        .with_assumption(
            f"{stages} stages of equally many layers, {(many + more) * stages} micro-batches in a "
            f"pipeline, each {stage_ns / 1e6:.2f} ms on a stage, and {output / 1e6:.2f} ms more on "
            "the last one, which holds output and loss; the bubble is "
            f"{(stages - 1) / chunks:g} times the former; activations pass on unseen but for "
            "filling and draining",
        )
    )


def _undo_pipeline(model: StepModel, now: int) -> StepModel:
    """Return the model whose ranks hold all layers, for as many fewer micro-batches each.

    They wait for no other stage and send it nothing; each computes what the mean stage did.
    """
    alone = remove_calls(fewer_replicas(model, 1 / now), between_stages(model), hooks=False)
    length = alone.lengths().astype(np.float64) * alone.is_compute
    of_rank = np.searchsorted(model.graph.ranks, model.graph.activities.rank)
    own = np.bincount(of_rank, length)
    evened = alone.with_lengths(alone.is_compute, length * (own.mean() / own)[of_rank])
    if MICRO_BATCHES in model.added:
        evened = _with_more_at_once(model, evened)
    return (
        replace(evened, low_confidence=True)
        .with_uncertainty("structure", 0.1)
        .with_assumption(
            f"no stages in place of {now}: each rank holds all layers and computes what the mean "
            "stage did, for fewer micro-batches"
        )
    )


def _with_more_at_once(model: StepModel, evened: StepModel) -> StepModel:
    """Return the model without stages whose further micro-batches, of as many layers as a stage
    held, take what those in it take."""
    staged = micro_batch(model)
    alone = micro_batch(evened)
    more = model.added[MICRO_BATCHES] / staged.ns
    return evened.add_step_time(
        MICRO_BATCHES,
        more * (alone.ns - staged.ns),
        exposed=more * (alone.exposed - staged.exposed),
        idle=more * (alone.idle - staged.idle),
    )


def stages_and_chunks(value: str) -> tuple[int, int]:
    """Return the stages of a pipeline, and the chunks of layers that each of them holds."""
    options = (
        parse_pairs(value, NAME, ("stages", "interleave")) if "=" in value else {"stages": value}
    )
    stages = positive_integer(options.get("stages", ""), NAME)
    return stages, positive_integer(options.get("interleave", "1"), "interleave")


def _outside_layers(model: StepModel) -> float:
    """Return the share of the forward pass that is in no layer: of output and loss, mostly."""
    shares = []
    for rank in model.graph.ranks:
        lane = compute_lane(model, rank)
        forward = lane[np.cumsum(model.facts.backward[lane]) == 0]
        length = model.lengths()[forward].astype(np.float64)
        position = {int(a): k for k, a in enumerate(forward.tolist())}
        within = sum(
            float(length[position[region.first] : position[region.last] + 1].sum())
            for region in find_layers(model, lane)
        )
        shares.append(1 - within / length.sum() if within else 0.0)
    return float(np.mean(shares))
