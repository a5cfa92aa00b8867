"""One kernel in place of each chain of memory-bound kernels: how long it would take, as an edit."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import read_lengths
from htk.base.columns.groups import Groups
from htk.base.columns.types import NONE, Floats, Ints, Mask, fill_none, take_or
from htk.base.core.humanize import join_in_order
from htk.base.names.fused import fused_implementation
from htk.quantities.measures.fusible import Chains, Key, find_chains
from htk.verdicts.causes.changes import CauseEdit
from htk.verdicts.causes.replayed import Z90
from htk.whatif.host_cost import remove_launches
from htk.whatif.step_model import StepModel


class FusedTime(NamedTuple):
    """Times of one kernel in place of a chain, in ns."""

    chain_ns: float
    fast_ns: float
    usual_ns: float
    slow_ns: float  # where all that is written has to be

    @property
    def saved_ns(self) -> float:
        return self.chain_ns - self.usual_ns

    @property
    def is_certain(self) -> bool:
        """Whether one kernel is shorter, however slow, and whatever it has to write."""
        return self.slow_ns < self.chain_ns


@dataclass(frozen=True)
class ChainKinds:
    """Chains that are alike, a row each, and what one kernel in place of one would take."""

    chains: Chains
    length: Ints  # of activities

    @classmethod
    def from_chains(cls, chains: Chains, kernels: pa.Table) -> "ChainKinds":
        return cls(chains, read_lengths(kernels))

    def __len__(self) -> int:
        return len(self.chains.keys)

    @cached_property
    def _activities(self) -> Groups:
        return Groups.by_keys(self.chains.alike[self.chains.chain])

    @cached_property
    def count(self) -> Ints:
        return np.bincount(self.chains.alike[self.chains.alike != NONE], minlength=len(self))

    @property
    def kernels(self) -> Ints:
        return self._activities.count

    @cached_property
    def device_ns(self) -> Ints:
        return self._activities.sum(self.length[self.chains.activity]).astype(np.int64)

    @cached_property
    def fused(self) -> list[FusedTime | None]:
        """The time of one kernel in place of each kind, at most the chain's; None: not known."""
        return [self._time_fused(kind) for kind in range(len(self))]

    @property
    def saved_ns(self) -> Floats:
        """The time that one kernel in place of each would save, of all of a kind."""
        each = [fused.saved_ns if fused else 0.0 for fused in self.fused]
        return np.array(each, np.float64) * self.count

    def name(self, kind: int) -> str:
        return join_in_order(self._list_operators(kind))

    def implementation(self, kind: int) -> str:
        return fused_implementation(self._list_operators(kind), *self.chains.around[kind])

    def activities_of(self, kinds: list[int]) -> Ints:
        """Return the activities of all chains of some kinds."""
        chains = self.chains
        return chains.activity[np.isin(chains.alike[chains.chain], kinds)]

    @cached_property
    def longest(self) -> list[Ints]:
        """The activities of the longest chain of each kind."""
        chains = self.chains
        each = Groups.by_keys(chains.chain)
        total = each.sum(self.length[chains.activity])
        key = chains.alike[each.keys[:, 0]]
        order = np.lexsort((-total, key))
        first = order[np.append(True, np.diff(key[order]) > 0)]
        ends = np.cumsum(each.count)
        return [chains.activity[ends[k] - each.count[k] : ends[k]] for k in first.tolist()]

    def _list_operators(self, kind: int) -> list[str]:
        return [name for name, _, _ in self.chains.keys[kind]]

    def _time_fused(self, kind: int) -> FusedTime | None:
        saving, rates = self.chains.savings[kind], self.chains.rates
        if saving is None:
            return None
        chain_ns = float(self.device_ns[kind] / self.count[kind])
        rest = saving.moved - saving.read - saving.written
        least = rates.lengths_of(rest)
        most = rates.lengths_of(rest + saving.written)
        own = chain_ns / max(saving.moved, 1)
        fast, usual, _ = least or (own * rest,) * 3
        slow = most[2] if most else own * (rest + saving.written)
        return FusedTime(chain_ns, *(min(ns, chain_ns) for ns in (fast, usual, slow)))


def chains_of(model: StepModel) -> Chains:
    """Return the chains of the replayed recording, found once."""
    return model.once("fusible chains", lambda: find_chains(model.facts.tables))


def without_chains(fused: Mapping[Key, FusedTime]) -> CauseEdit:
    """Return the edit with one kernel in place of each of these chains."""
    won = sum(each.saved_ns for each in fused.values())
    unsure = sum(each.slow_ns - each.fast_ns for each in fused.values()) / (2 * Z90)

    def fuse_chains(model: StepModel) -> StepModel:
        chains = chains_of(model)
        places = _Places.from_chains(chains, model.facts.tables["kernels"].num_rows)
        length = [fused[key].usual_ns if key in fused else np.nan for key in chains.keys]
        wanted = take_or(np.array(length), take_or(places.key, model.facts.rows), np.nan)
        is_chosen = ~np.isnan(wanted)
        is_first = is_chosen & take_or(places.is_first, model.facts.rows, False)
        changed = remove_launches(model.with_lengths(is_first, wanted), is_chosen & ~is_first)
        return changed.with_uncertainty("compute", unsure / max(won, 1.0))

    return CauseEdit("replace", fuse_chains)


@dataclass(frozen=True)
class _Places:
    """The key of each activity's chain, and whether the activity is its first."""

    key: Ints
    is_first: Mask

    @classmethod
    def from_chains(cls, chains: Chains, many: int) -> "_Places":
        key = fill_none(many)
        key[chains.activity] = chains.alike[chains.chain]
        is_first = np.zeros(many, bool)
        is_first[chains.activity] = chains.is_first
        return cls(key, is_first)
