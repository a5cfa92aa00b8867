"""Bytes on the wire against a published report's figures and by hand."""

import pytest

from htk.physics.presets import decoder
from htk.physics.wire import Sharding, build_ledger, wire_bytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("kind", "into", "out", "sent"),
    [
        ("all_gather", MB, 4 * MB, 3 * MB),
        ("reduce_scatter", 4 * MB, MB, 3 * MB),
        ("all_reduce", 4 * MB, 4 * MB, 6 * MB),
        ("all_to_all", 4 * MB, 4 * MB, 3 * MB),
        ("broadcast", MB, MB, MB),
    ],
)
def test_four_ranks(kind: str, into: int, out: int, sent: int) -> None:
    assert wire_bytes(kind, into, out, 4) == sent


def test_a_report_of_eight_ranks() -> None:
    """Llama 2 7B on 2 x 4 A100: 1.75 GB handed in forward, 3.5 GB in all, 11.8 GB per gather."""
    told = build_ledger(7_000_000_000, Sharding("full_shard", 8))
    assert told.forward_gather_input == 1.75e9
    assert told.gather_input == 3.5e9
    true = build_ledger(6_738_415_616, Sharding("full_shard", 8))
    assert true.gather_wire / 2 == pytest.approx(11.79e9, rel=1e-3)
    assert true.wire == pytest.approx(35.4e9, rel=1e-3)


def test_the_root_is_not_gathered_again() -> None:
    model = decoder("llama2-7b")
    true = build_ledger(model.parameters, Sharding("full_shard", 8), kept=model.root_parameters)
    assert true.forward_gather_input == pytest.approx(1.685e9, rel=1e-3)
    assert true.gather_input == pytest.approx(3.30e9, rel=2e-3)


@pytest.mark.parametrize(
    ("sharding", "wire"),
    [
        # 1000 parameters of two bytes.
        (Sharding("full_shard", 4), 3 / 4 * (2 * 2000 + 2000)),
        (Sharding("shard_grad_op", 4), 3 / 4 * (2000 + 2000)),
        (Sharding("ddp", 1, 4), 2 * 3 / 4 * 2000),
        (Sharding("hybrid_shard", 4, 2), 3 / 4 * 6000 + 2 * 1 / 2 * 500),
        (Sharding("ddp", 2, 4), 2 * 7 / 8 * 2000),
        (Sharding("zero1", 4), 3 / 4 * (2000 + 2000)),
        (Sharding("zero2", 4, 1, 1, 4), 3 / 4 * (1000 + 4000)),
        (Sharding("full_shard", 4, 1, 1, 4), 3 / 4 * (2 * 1000 + 4000)),
    ],
)
def test_strategies(sharding: Sharding, wire: float) -> None:
    assert build_ledger(1000, sharding).wire == wire


def test_without_sync_gradients_are_reduced_once() -> None:
    told = build_ledger(1000, Sharding("full_shard", 4), micro_batches=3, syncs=1)
    assert told.gather_wire == 3 * 3 / 4 * 4000
    assert told.reduce_wire == 3 / 4 * 2000


def test_zero_gathers_its_shard_once_and_reduces_at_each_synchronisation() -> None:
    """1200 parameters of two bytes, a third of them a rank's own."""
    sent = build_ledger(1200, Sharding("zero2", 3), micro_batches=5, syncs=2)
    assert (sent.gather_input, sent.gather_wire) == (800, 1600)
    assert (sent.forward_gather_input, sent.all_reduce_wire) == (0, 0)
    assert sent.reduce_wire == 2 * 2 / 3 * 2400


def test_sizes_that_are_not_known_send_an_unknown_amount() -> None:
    assert wire_bytes("all_reduce", -1, -1, 4) is None
    assert wire_bytes("barrier", 4, 4, 4) is None
