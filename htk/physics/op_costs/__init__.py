"""The cost of one call of an operator, from its name and shapes: operations and bytes.

One module for each family; `compute_call_cost` asks the one that knows the operator.
"""

from functools import lru_cache

from htk.physics.op_costs import (
    attention_ops,
    convolution,
    elementwise,
    experts,
    fft,
    inductor,
    loss,
    matmul,
    movement,
    norm,
    optimizer,
    pooling,
    recurrent,
    reduction,
    served_products,
    serving,
    tables,
)
from htk.physics.op_costs.call import FALLBACK, Cost, Model, OperatorCall, Unrecorded, read_call

_FAMILIES = (
    elementwise,
    movement,
    reduction,
    norm,
    pooling,
    loss,
    optimizer,
    convolution,
    attention_ops,
    matmul,
    served_products,
    experts,
    fft,
    recurrent,
    tables,
)
MODELS: dict[str, Model] = {name: m for f in _FAMILIES for name, m in f.MODELS.items()}

_FORWARD = {
    **tables.FORWARD,
    **served_products.FORWARD,
    **attention_ops.FORWARD,
    **movement.FORWARD,
    **convolution.FORWARD,
}
# Calls whose result's size the gradient tells that their node was given.
NODE_TELLS_RESULT = frozenset({*tables.FORWARD.values(), *movement.FORWARD.values()})
# Of these only where the values of stride and padding were not recorded.
CONVOLUTIONS = convolution.FORWARDS
CALLER_TELLS_RESULT = (
    movement.CALLERS
)  # by caller the call whose result is as large as its gradient

CostOrReason = Cost | str  # the cost, or why there is none


@lru_cache(maxsize=10_000)
def model_of(name: str) -> Model | None:
    """Return who knows an operator, by its name."""
    if name in MODELS:
        return MODELS[name]
    if name.startswith("aten::_foreach_"):
        return optimizer.cost_foreach
    if inductor.PATTERN.match(name):
        return inductor.cost_fused
    return None


def forward_name(name: str) -> str | None:
    """Return the forward operator that makes a backward node of that name, where the arguments of
    one tell the work of the other."""
    return _FORWARD.get(name)


def compute_call_cost(
    name: str, dims: str | None, types: str | None, values: str | None, unknown: str = FALLBACK
) -> CostOrReason:
    """Return the cost of a call, or why it is not known. `unknown`: type of tensors without one."""
    model = model_of(name)
    if model is None:
        return _explain_no_model(name)
    if dims is None:
        return "no shapes recorded"
    call = read_call(name, dims, types, values, unknown)
    if call is None:
        return "shapes unreadable"
    cost = cost_of(model, call)
    return _UNTOLD.get(name, cost) if isinstance(cost, str) else cost


_LENGTHS = "lengths of requests not recorded"
_EXPERTS = "sizes of experts not recorded"
# Operators of servers whose arguments lack the sizes.
_UNTOLD = {
    "trtllm::attention": _LENGTHS,
    "vllm::moe_forward": _EXPERTS,
    "vllm::moe_forward_shared": _EXPERTS,
    "trtllm::fused_moe": _EXPERTS,
}


def _explain_no_model(name: str) -> str:
    return _UNTOLD.get(name) or (_LENGTHS if serving.is_served(name) else "no model")


def served_cost(
    name: str,
    dims: str | None,
    types: str | None,
    values: str | None,
    tokens: serving.Tokens | None,
    unknown: str = FALLBACK,
) -> CostOrReason:
    """Return what a call of a server's attention costs in an iteration of so many tokens."""
    if tokens is None:
        return _LENGTHS
    if dims is None:
        return "no shapes recorded"
    call = read_call(name, dims, types, values, unknown)
    if call is None:
        return "shapes unreadable"
    return cost_of(lambda operator: serving.cost_served_attention(operator, tokens), call)


def cost_of(model: Model, call: OperatorCall) -> CostOrReason:
    try:
        cost = model(call)
    except Unrecorded as what:
        return str(what)
    except (LookupError, ValueError, TypeError, ArithmeticError):
        return "shapes incomplete"  # such as lists of tensors whose shapes were not recorded
    return cost if cost.flops >= 0 and cost.bytes >= 0 else "shapes incomplete"
