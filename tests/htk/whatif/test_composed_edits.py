"""Edits of edits: factors multiply, other values take the place of those before."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.composed_edits import composed_edits


def compose(first: str, second: str) -> str:
    pairs = [[tuple(e.split(":")) for e in text.split()] for text in (first, second)]
    composed = composed_edits(*pairs)  # type: ignore[arg-type]
    return " ".join(f"{name}:{value}" for name, value in composed)


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ("batch:2x", "batch:3x", "batch:6x"),
        ("batch:8", "batch:0.5x", "batch:4"),
        ("batch:global=64", "batch:2x", "batch:global=128"),
        ("batch:2x host:2x", "host:4", "batch:2x host:8x"),
        ("tp:4 sp:on", "tp:2", "sp:on tp:2"),
        ("tp:4 sp:on", "tp:1", "tp:1"),
        ("fix_rank:1", "fix_rank:2", "fix_rank:1 fix_rank:2"),
        ("serving:requests=2x,kv=fp8", "serving:requests=2x", "serving:requests=4x,kv=fp8"),
        ("network:inter_gbps=25", "network:latency=2x", "network:inter_gbps=25,latency=2x"),
    ],
)
def test_by_hand(first: str, second: str, both: str) -> None:
    assert compose(first, second) == both


def test_edits_that_do_not_compose_are_refused() -> None:
    with pytest.raises(UsageError, match="give both at once"):
        composed_edits([("network", "bandwidth=2x")], [("network", "inter_gbps=25")])
