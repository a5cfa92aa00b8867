"""What collectives and sharding strategies send: bytes on the wire, per rank.

A ring algorithm's traffic, which no algorithm without multicast beats: (n-1)/n of the whole buffer
for all_gather, reduce_scatter and all_to_all, twice that for all_reduce.
"""

from dataclasses import dataclass

from htk.physics.bandwidth import algorithm_bytes, find_bus_factor

STRATEGIES = ("ddp", "shard_grad_op", "full_shard", "hybrid_shard")


def wire_bytes(kind: str, in_bytes: int, out_bytes: int, ranks: int) -> int | None:
    """Return the bytes that one rank sends in a collective; None: not defined for that type."""
    size = algorithm_bytes(kind, in_bytes, out_bytes, ranks)
    share = find_bus_factor(kind, ranks)
    return None if size is None or share is None else round(size * share)


@dataclass(frozen=True)
class Sharding:
    """How parameters are spread: over `shards` ranks, in `replicas` copies."""

    strategy: str
    shards: int
    replicas: int = 1
    parameter_bytes: int = 2  # of an element as gathered
    gradient_bytes: int = 2  # of an element as reduced


@dataclass(frozen=True)
class Ledger:
    """Per rank and step. Inputs are what the rank hands in, wire bytes what it sends."""

    forward_gather_input: float
    gather_input: float
    gather_wire: float
    reduce_wire: float  # reduce-scatters
    all_reduce_wire: float

    @property
    def wire(self) -> float:
        return self.gather_wire + self.reduce_wire + self.all_reduce_wire


def build_ledger(
    parameters: int,
    sharding: Sharding,
    *,
    kept: int = 0,
    micro_batches: int = 1,
    syncs: int | None = None,
) -> Ledger:
    """Return what a step sends, from the number of parameters.

    (N-1)/N · [2·e_p·(Ψ-Ψ_kept)·m + e_p·Ψ_kept·m + e_g·Ψ·m_sync], where `kept` parameters stay whole
    after the forward pass and are gathered once per micro-batch instead of twice.
    """
    n, r = sharding.shards, sharding.replicas
    syncs = micro_batches if syncs is None else syncs
    gradient = sharding.gradient_bytes * parameters
    if sharding.strategy == "ddp":
        ranks = n * r
        return Ledger(0.0, 0.0, 0.0, 0.0, 2 * (ranks - 1) / ranks * gradient * syncs)
    if sharding.strategy in ("zero1", "zero2"):  # gathered once, whatever the micro-batches
        own = sharding.parameter_bytes * parameters / n
        return Ledger(0.0, own, (n - 1) * own, (n - 1) / n * gradient * syncs, 0.0)
    twice = 0 if sharding.strategy == "shard_grad_op" else parameters - kept
    once = sharding.parameter_bytes * parameters / n * micro_batches
    again = sharding.parameter_bytes * twice / n * micro_batches
    return Ledger(
        forward_gather_input=once,
        gather_input=once + again,
        gather_wire=(n - 1) * (once + again),
        reduce_wire=(n - 1) / n * gradient * syncs,
        all_reduce_wire=2 * (r - 1) / r * gradient / n * syncs,
    )
