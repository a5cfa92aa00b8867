"""A faster or slower network, at each of its levels; or one that a benchmark has measured."""

from dataclasses import replace

import numpy as np

from htk.base.columns.arrow import read_numbers
from htk.base.errors import UsageError
from htk.physics.latency_bandwidth import fit_segments, predicted_us
from htk.physics.network import Fabric, find_fabric
from htk.whatif.edit_arguments import parse_factor, parse_pairs, positive_integer
from htk.whatif.step_model import StepModel
from htk.whatif.transfers import compute_wire_bytes, find_latencies, gpus_of_a_node, share_adapters

NAME = "network"
HELP = (
    "Collectives' rates by a factor: bandwidth=2x,latency=0.5x, of one level intra_bandwidth=, "
    "intra_latency=, inter_bandwidth=, inter_latency=; between nodes by name (roce-400, "
    "infiniband-ndr) or GB/s one way of a GPU's adapter (inter_gbps=25), with adapters of a node "
    "lost (lost=1); or curve=on: as the nccl-tests output given beside the trace has measured."
)

_STATED = 0.3  # one sigma, of what transfers then take more or less
_LEVELS = {"": None, "intra_": False, "inter_": True}  # does the group leave its node?
_KNOWN = (
    *(f"{level}{what}" for level in _LEVELS for what in ("bandwidth", "latency")),
    "inter_gbps",
    "lost",
    "curve",
)


def apply(model: StepModel, value: str) -> StepModel:
    if "=" not in value:
        return _between_nodes(model, find_fabric(value), value)
    options = parse_pairs(value, NAME, _KNOWN)
    changed = model
    if "inter_gbps" in options:
        rate = parse_factor(options["inter_gbps"], "inter_gbps")
        changed = _between_nodes(model, Fabric(rate), f"{rate:g} GB/s")
    if "curve" in options:
        if options["curve"] != "on":
            raise UsageError(f"{NAME} curve={options['curve']!r}: it can only be on")
        changed = _apply_benchmark(model)
    faster = np.ones(len(model.facts.op))
    slower = np.ones(len(model.facts.op))
    for level, crosses in _LEVELS.items():
        affected = model.is_comm
        if crosses is not None:
            affected = affected & (model.facts.crosses == crosses)
        faster[affected] *= parse_factor(options.get(level + "bandwidth", "1"), "bandwidth")
        slower[affected] *= parse_factor(options.get(level + "latency", "1"), "latency")
    length = changed.lengths()
    fixed = np.minimum(find_latencies(changed), length)
    changed = changed.with_lengths(model.is_comm, fixed * slower + (length - fixed) / faster)
    if "lost" in options:
        changed = _without_adapters(changed, positive_integer(options["lost"], "lost"))
    faster_links = model.links * max(1.0, float(faster.max(initial=1.0)))
    changed = replace(changed, links=faster_links)
    return changed.with_uncertainty("communication", 0.1).with_assumption(
        "a transfer is a latency and bytes over bandwidth; the latency is that of the fastest "
        "collective of its kind"
    )


def _between_nodes(model: StepModel, links: Fabric, name: str) -> StepModel:
    """Return the model whose transfers between nodes take what that network lets one expect,
    whatever was recorded or assumed of them before."""
    sent = compute_wire_bytes(model) / share_adapters(model, True)
    chosen = model.is_comm & model.facts.crosses & (sent > 0)
    if not chosen.any():
        raise UsageError(
            f"{NAME} {name}: no transfer of known size leaves its node; ask for it with --world "
            "2x8, or for intra_bandwidth=2x"
        )
    pace = 1 / (links.achieved * links.gbps * gpus_of_a_node(model))
    stated = model.with_lengths(chosen, links.latency_ns + np.nan_to_num(sent) * pace)
    edges = model.run_edge[chosen]
    sigmas = {cause: sigma.copy() for cause, sigma in model.edge_sigma.items()}
    for (cause, _), sigma in sigmas.items():
        if cause == "communication":
            sigma[edges] = 0.0
    return (
        replace(stated, edge_sigma=sigmas)
        .with_uncertainty("communication", _STATED)
        .with_assumption(
            f"between nodes {name}: {links.achieved * links.gbps:.3g} of {links.gbps:g} GB/s of a "
            f"GPU's adapter are achieved, {links.latency_ns / 1e3:g} µs for each transfer"
        )
    )


def _without_adapters(model: StepModel, lost: int) -> StepModel:
    """Return the model whose nodes send through fewer adapters, of one for each GPU."""
    adapters = gpus_of_a_node(model)
    across = model.is_comm & model.facts.crosses
    if not across.any():
        raise UsageError(
            f"{NAME} lost={lost}: no transfer leaves its node, through whose adapters it would go; "
            "ask for it with --world 2x8"
        )
    if lost >= adapters:
        raise UsageError(
            f"{NAME} lost={lost}: a node of {adapters} GPUs has as many adapters; take fewer"
        )
    length = model.lengths()
    fixed = np.minimum(find_latencies(model), model.lengths())
    slower = adapters / (adapters - lost)
    return model.with_lengths(across, fixed + (length - fixed) * slower).with_assumption(
        f"{adapters - lost} of {adapters} adapters of each node carry what all did, one for a GPU"
    )


def _apply_benchmark(model: StepModel) -> StepModel:
    """Each transfer takes what the benchmark of its type took for as many bytes on the wire."""
    points = model.facts.tables["bench_points"]
    if not points.num_rows:
        raise UsageError(
            f"{NAME} curve=on: give the output of nccl-tests beside the trace, as another path"
        )
    sent = compute_wire_bytes(model)
    length = model.lengths().astype(np.float64)
    types = np.array([t or "" for t in points["type"].to_pylist()])
    time = read_numbers(points["time_us"], np.nan).astype(np.float64)
    moved = read_numbers(points["busbw_gbps"], np.nan) * time * 1e3
    size = read_numbers(points["size_bytes"], 0)
    moved = np.where(np.isnan(moved), size, moved).astype(np.float64)
    benchmarked = np.zeros(len(length), bool)
    for kind in np.unique(types).tolist():  # a few types
        curve = fit_segments(moved[types == kind], time[types == kind])
        same_type = model.is_collective(kind) & ~np.isnan(sent)
        benchmarked |= same_type
        for transfer in np.flatnonzero(same_type).tolist() if curve else ():  # some hundreds
            length[transfer] = 1e3 * predicted_us(curve, float(sent[transfer]))
    if not benchmarked.any():
        raise UsageError(
            f"{NAME} curve=on: {', '.join(sorted(set(types.tolist())))} were measured, which the "
            "step holds none of with known sizes"
        )
    ranks = sorted({int(n) for n in read_numbers(points["group_size"], -1).tolist() if n > 0})
    return model.with_lengths(benchmarked, length).with_assumption(
        f"{int(benchmarked.sum())} of {int(model.is_comm.sum())} transfers take what the benchmark "
        f"took, which ran on {' and '.join(str(n) for n in ranks) or 'unknown'} ranks"
    )
