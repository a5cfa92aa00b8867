"""Expert parallelism: more ranks, more to send."""

import pytest

from htk.base.errors import UsageError
from htk.whatif.edits import ep
from tests.htk.whatif.edits.attention_step import STEP, K
from tests.htk.whatif.small_step_model import Act, comm, length, small_model


def test_experts_on_more_ranks_send_more() -> None:
    model = small_model(
        [
            Act("x", 100 * K),
            comm(
                "d", 160 * K, "all_to_all", in_bytes=8 << 20, out_bytes=8 << 20, group=2, per_node=2
            ),
        ]
    )
    # latency 20, 140 for half of the tokens; of 8 ranks 7/8 leave
    assert length(ep.apply(model, "8"), "d") == 20 * K + 245 * K
    assert length(ep.apply(model, "1"), "d") == 0
    with pytest.raises(UsageError, match="no all-to-alls"):
        ep.apply(small_model(STEP), "8")
