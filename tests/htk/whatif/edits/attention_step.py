"""A step of two attention layers with their gradients reduced, in ns."""

from tests.htk.whatif.small_step_model import Act, comm

K = 1000

X = 2 * 1024 * 512  # bytes of activations

SHAPE = "[2, 8, 512, 64]"

DIMS = f"[{SHAPE}, {SHAPE}, {SHAPE}]"

WHOLE = "[[1024, 512], []]"


def attention(name: str, backward: bool = False) -> Act:
    op = "aten::_flash_attention" + ("_backward" if backward else "_forward")
    return Act(name, 1002_500, family="attention", op=op, dims=DIMS, backward=backward)


STEP = [
    Act("e", 100 * K, family="other", op="aten::embedding", dims="[[32000, 512], [2, 512]]"),
    attention("a0"),
    Act("n0", 200 * K, family="norm", op="aten::norm", dims=WHOLE),
    attention("a1"),
    attention("c1", True),
    Act("m", 200 * K, family="elementwise", op="aten::mul", dims=WHOLE, backward=True),
    attention("c0", True),
    Act("opt", 800 * K, waits=("r",), family="optimizer"),
    comm(
        "r",
        440 * K,
        "all_reduce",
        waits=("c0",),
        in_bytes=24_000_000,
        group=8,
        per_node=8,
        backward=True,
    ),
]
