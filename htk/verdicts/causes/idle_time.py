"""Idle time of GPUs, by what the host did meanwhile: what causes of idle time share."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from htk.base.columns.arrow import codes_of, read_booleans, read_keys
from htk.base.columns.types import Ints, Mask
from htk.quantities.derived.idle import CAUSES
from htk.quantities.derived.idle_totals import cause_numbers

HOST = ("host_system_call", "host_operator", "host_runtime_call", "host_python", "launch_latency")


@dataclass(frozen=True)
class Idle:
    """The columns of table `idle_costs`: a row for pieces of idle time that are alike."""

    rank: Ints
    cycle: Ints
    step: Ints  # NONE: in none
    cause: Ints  # in `CAUSES`
    is_long: Mask
    name: Ints  # of what the host waited in, in `names` (NONE: nothing, or unnamed)
    names: list[str | None]
    blocks: Mask  # that is a blocking call
    frees: Mask  # memory was given back to the driver meanwhile
    pieces: Ints
    length: Ints
    blocked: Ints  # ns that a blocking call explains
    longest_start: Ints
    longest_ns: Ints

    def of_causes(self, chosen: tuple[str, ...]) -> Mask:
        return np.isin(self.cause, [k for k, name in enumerate(CAUSES) if name in chosen])

    @classmethod
    def from_costs(cls, idle_costs: pa.Table) -> "Idle":
        name, names = codes_of(idle_costs["name"])
        ints = ("rank", "cycle", "step", "pieces", "longest_ns")
        return cls(
            **{column: read_keys(idle_costs[column]) for column in ints},
            cause=cause_numbers(idle_costs["cause"]),
            is_long=read_booleans(idle_costs["long"]),
            name=name.astype(np.int64),
            names=names.to_pylist(),
            blocks=read_booleans(idle_costs["blocking"]),
            frees=read_booleans(idle_costs["frees"]),
            length=read_keys(idle_costs["idle_ns"]),
            blocked=read_keys(idle_costs["blocked_ns"]),
            longest_start=read_keys(idle_costs["longest_start_ns"]),
        )

    def own_cost(self, *causes: str) -> Ints:
        """Return how long each piece is idle for these causes, without what a blocking call
        explains: that has a cause of its own."""
        return np.where(self.of_causes(causes), self.length - self.blocked, 0)
