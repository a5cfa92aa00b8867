"""The number format of a recorded step's matrix products."""

import re
from collections import Counter

import numpy as np

from htk.base.columns.groups import Groups
from htk.base.names.kinds import MULTIPLIED_FORMATS, read_number_format
from htk.quantities.measures.op_work import in_tf32_by_name
from htk.whatif.step_model import StepModel

_SINGLE = ("tf32", "fp32")
_HALF = ("bf16", "fp16", "fp8")  # of weights, whatever format products cast them to
_VECTORS = re.compile(r"sgemm(?!.*tf32)|simt", re.I)


def number_format(model: StepModel) -> str | None:
    """Return the format of the step's matrix products, as edits left them."""
    return model.number_format or recorded_format(model)


def element_bytes(model: StepModel) -> int:
    """Return the bytes of an element that products read: 2 where the format is not known."""
    return 4 if number_format(model) in _SINGLE else 2


def gradient_bytes(model: StepModel) -> int:
    """Return the bytes of an element of a gradient: of weights that autocast casts, four."""
    casts = model.facts.op.isin("aten::copy_") & model.facts.types.where(
        lambda types: types and "float" in types and ("BFloat16" in types or "Half" in types)
    )
    return 2 if number_format(model) in _HALF and not casts.any() else 4


def recorded_format(model: StepModel) -> str | None:
    """Return the format of most time in matrix products and convolutions: fp8, bf16, fp16, tf32 or
    fp32; None: neither types of operators nor names of kernels tell it."""
    return model.once("number format", lambda: _recorded_format(model))


def _recorded_format(model: StepModel) -> str | None:
    activities = model.graph.activities
    products = np.flatnonzero(model.facts.family.isin("gemm", "convolution"))
    time_by_format = Counter[str]()
    types = model.facts.types
    kinds = Groups.by_keys([types.codes[products], activities.name[products]])
    time_of_kind = kinds.sum(activities.length[products]).tolist()
    for (type_code, name_code), time in zip(kinds.keys.tolist(), time_of_kind, strict=True):
        text = f"{types.distinct[type_code] or ''} {activities.names[name_code]}"
        number_format = read_number_format(text, MULTIPLIED_FORMATS)
        if number_format:
            time_by_format[number_format] += time
    if not time_by_format:
        return None
    most = time_by_format.most_common(1)[0][0]
    return "tf32" if most == "fp32" and _runs_in_tf32(model) else most


def names_tf32(model: StepModel) -> bool:
    """Return whether the name of some matrix product says that it multiplies in TF32."""
    return any(map(in_tf32_by_name, _product_names(model)))


def _runs_in_tf32(model: StepModel) -> bool:
    """Return whether products of single precision run on matrix units, as their names say."""
    if model.device is not None and not model.device.has("tf32"):
        return False
    return names_tf32(model) or not any(map(_VECTORS.search, _product_names(model)))


def _product_names(model: StepModel) -> set[str]:
    names = model.graph.activities
    return {names.names[code] for code in names.name[model.facts.family.isin("gemm")].tolist()}
