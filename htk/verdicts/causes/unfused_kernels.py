"""Chains of memory-bound kernels that one kernel could be. Of each it is certain that one is
shorter: even at the rate of slow calls, and if it writes all that the chain does."""

from collections import Counter

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_numbers
from htk.base.columns.types import Ints
from htk.base.core.humanize import pluralize_count, shorten_text
from htk.base.names.fused import COMPILED
from htk.physics.detected import Device
from htk.verdicts.causes.cause import Cause, Example, find_costliest
from htk.verdicts.causes.fused_chains import ChainKinds, chains_of, without_chains
from htk.verdicts.causes.program import FUSED_ELSEWHERE
from htk.verdicts.causes.recorded import CauseEvidence

FINDING = "memory-bound kernels that one kernel could be"
_NAMED = 3  # kinds of chains, and what does them
_TRITON = (7, 0)  # compute capability that it takes
_OF_TRITON = (COMPILED, "liger")


def find_causes(recorded: CauseEvidence) -> list[Cause]:
    """Return the cause where the steps replay and shapes were recorded: else there are no
    figures."""
    if recorded.replayed is None:
        return []
    model = recorded.replayed.model
    kernels = model.facts.tables["kernels"]
    kinds = ChainKinds.from_chains(chains_of(model), kernels)
    fused = {k: each for k, each in enumerate(kinds.fused) if each and each.is_certain}
    change = without_chains({kinds.chains.keys[k]: each for k, each in fused.items()})
    gain = recorded.replayed.gain((change,)) if fused else None
    if gain is None or gain.low <= 0:
        return []
    of_all_gpus = recorded.gpus / len(kernels["rank"].unique())
    most = sorted(fused, key=lambda k: -kinds.saved_ns[k])
    activities = kinds.activities_of(most)
    length = kinds.length[activities]
    code, names = codes_of(kernels["name"])
    cause = Cause(
        FINDING,
        f"{pluralize_count(int(kinds.count[most].sum()), 'chain')}, "
        f"{recorded.spent(round(of_all_gpus * int(length.sum())))}: "
        f"{_describe_chains(kinds, most)}",
        _advise_on_chains(recorded, kinds, most),
        round(of_all_gpus * float(kinds.saved_ns[most].sum())),
        "fusible_chains",
        find_costliest(names.to_pylist(), code[activities].astype(np.int64), length),
        _build_example(kernels, kinds.longest[most[0]]),
        change=change,
        is_bound=True,
    )
    return [cause]


def _describe_chains(kinds: ChainKinds, most: list[int]) -> str:
    """Return the chains that cost most, and which share of what they move one kernel saves."""
    savings = [kinds.chains.savings[k] for k in most]
    each = [(s.moved, s.read + s.written) if s else (0, 0) for s in savings]
    moved, less = kinds.count[most] @ np.array(each, np.float64)
    names = "; ".join(
        f"{shorten_text(kinds.name(k))}, {pluralize_count(int(kinds.count[k]), 'time')}"
        for k in most[:_NAMED]
    )
    return f"{names}; one kernel for each moves {100 * less / moved:.0f} % less"


def _build_example(kernels: pa.Table, chain: Ints) -> Example:
    rank = read_numbers(kernels["rank"])[chain]
    start = read_numbers(kernels["start_ns"])[chain]
    end = read_numbers(kernels["end_ns"])[chain]
    return Example(int(rank[0]), int(start[0]), int(end[-1]))


def _advise_on_chains(recorded: CauseEvidence, kinds: ChainKinds, most: list[int]) -> str:
    """Return what does most of the chains at once, on this accelerator."""
    if not recorded.program.is_torch:
        return f"{FUSED_ELSEWHERE}, for each"
    saved: Counter[str] = Counter()
    for k in most:
        saved[_list_ways(kinds.implementation(k), recorded.device)] += int(kinds.saved_ns[k])
    ways = [way for way, _ in saved.most_common(_NAMED)]
    if recorded.program.is_compiled and COMPILED in ways:
        ways[ways.index(COMPILED)] = f"{COMPILED} of what it left out (TORCH_LOGS=graph_breaks)"
    return "; ".join(ways)


def _list_ways(implementation: str, device: Device | None) -> str:
    """Return the implementations of one kind of chain that the accelerator runs."""
    capability = device.capability if device and device.wave == 32 else None
    ways = implementation.split("; ")
    if capability is not None and capability < _TRITON:
        ways = [way for way in ways if not way.startswith(_OF_TRITON)]
    return " or ".join(ways) or "a kernel of your own"
