"""Where attention's arguments lie, against the schemas that PyTorch itself registers."""

from functools import partial
from typing import Any

import pytest

from htk.physics.op_costs.attention import Places
from htk.physics.op_costs.attention_ops import MODELS
from htk.physics.op_costs.call import OperatorCall, Tensor

torch = pytest.importorskip("torch")

# What an argument is called in a schema; the names differ between libraries.
CAUSAL = {"is_causal", "custom_mask_type"}
FIELDS = {
    "lengths": ({"cum_seq_q", "cu_seqlens_q"}, {"cum_seq_k", "cu_seqlens_k"}),
    "longest": ({"max_q", "max_seqlen_q"}, {"max_k", "max_seqlen_k"}),
    "windows": ({"window_size_left"}, {"window_size_right"}),
}
PLACED = {
    name: model.keywords["places"]
    for name, model in MODELS.items()
    if name.startswith("aten::") and isinstance(model, partial)
}


def schemas(name: str) -> dict[str, list[str]]:
    """Return the names of arguments of each overload of an operator."""
    return {
        schema.overload_name: [argument.name for argument in schema.arguments]
        for schema in torch._C._jit_get_schemas_for_operator(name)
    }


@pytest.mark.parametrize("name", PLACED)
def test_arguments_lie_where_the_schema_has_them(name: str) -> None:
    places: Places = PLACED[name]
    arguments = schemas(name)[""]
    assert arguments[places.causal] in CAUSAL
    assert places.mask_type == (arguments[places.causal] == "custom_mask_type")
    first = places.first if places.first is not None else int(places.backward)
    assert arguments[first : first + 3] == ["query", "key", "value"]
    for field, wanted in FIELDS.items():
        positions = getattr(places, field)
        if positions is not None:
            found = [arguments[position] for position in positions]
            assert all(n in names for n, names in zip(found, wanted, strict=True)), (field, found)
    if places.window is not None:
        assert arguments[places.window] == "window_size"


def test_operators_whose_lengths_the_schema_has_are_read_with_them() -> None:
    for name, places in PLACED.items():
        arguments = set(schemas(name)[""])
        varlen = places.layout == "tokens first" or name == "aten::_cudnn_attention_forward"
        if varlen and arguments & {"cum_seq_q", "cu_seqlens_q"}:
            assert places.lengths is not None, name


def call(name: str, overload: str, **values: Any) -> OperatorCall:
    """A call of 8 queries and keys, 2 heads of 16, with the arguments of an overload by name."""
    tensor = Tensor((1, 2, 8, 16) if "_dot_product" in name else (1, 8, 2, 16), "c10::BFloat16")
    scale = Tensor((1,), "float")
    names = schemas(name)[overload]
    tensors = dict.fromkeys(("query", "key", "value"), tensor)
    tensors |= {n: scale for n in names if n.endswith("_descale")}
    given = values | {n: 8 for n in ("max_q", "max_k") if n in names}
    return OperatorCall(
        name, tuple(tensors.get(n) for n in names), tuple(given.get(n) for n in names)
    )


@pytest.mark.parametrize("overload", ["", "quantized"])
def test_windows_of_both_overloads_of_flash(overload: str) -> None:
    """Each of 8 queries sees itself and two keys before it: 1 + 2 + 6 x 3 = 21 pairs of 64."""
    name = "aten::_flash_attention_forward"
    whole = MODELS[name](call(name, overload))
    windowed = MODELS[name](call(name, overload, window_size_left=2, window_size_right=0))
    assert whole.flops == 4 * 64 * 2 * 16
    assert windowed.flops == 4 * 21 * 2 * 16


@pytest.mark.parametrize("overload", ["", "quantized"])
def test_the_causal_half_of_both_overloads_of_flash(overload: str) -> None:
    """8 queries see 1 to 8 keys: 36 pairs."""
    for name in ("aten::_flash_attention_forward", "aten::_scaled_dot_product_flash_attention"):
        causal = MODELS[name](call(name, overload, is_causal=True))
        whole = MODELS[name](call(name, overload, is_causal=False))
        assert causal.flops * 64 == whole.flops * 36, name
