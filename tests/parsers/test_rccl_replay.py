"""RCCL's replay logs."""

from tests.parsers.log_files import rows, sample, values


def test_rccl_replay() -> None:
    (call,) = rows(sample("rccl_replay/replayer_log.1275.node-m.json"))
    assert values(call, "comm_hash", "comm_rank") == (17168916771200794912, 0)
    assert values(call, "in_bytes", "coalesced") == (16384, "group")
    assert call["enqueue_ns"] == 1745623619986908691
