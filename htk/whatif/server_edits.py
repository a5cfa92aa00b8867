"""Edits of training steps that say nothing of a server's iteration, and what to ask instead."""

from collections.abc import Mapping, Sequence

from htk.base.errors import UsageError
from htk.physics.hardware import Gpu
from htk.whatif.served_iteration import ServedIteration

_INSTEAD = {
    "batch": "--serving requests=2x (or prefill=2x)",
    "seq": "--serving context=2x (or prefill=2x)",
    "accumulation": "--serving requests=2x",
    "precision": "--serving weights=fp8 (and kv=fp8)",
    "tp": "--serving model=NAME,tp=2",
    "ep": "--serving model=NAME,ep=8",
    "world": "--serving dp=2",
    "sp": "--serving model=NAME,tp=2",
    "cp": "htk plan-serving",
    "pp": "htk plan-serving --pipeline-parallel 2",
    "sharding": "",
    "checkpointing": "",
    "attention": "",
    "loss": "",
    "optimizer": "",
    "lora": "",
    "no_sync": "",
    "bucket": "",
    "prefetch_depth": "",
    "gradients": "",
    "workers": "",
    "no_data_wait": "",
}
TRAINING_EDITS = frozenset(_INSTEAD)
# Controls of a server's settings, `serving.requests` of `--serving requests=2x`: by factors, and by
# choices.
SERVED_FACTORS = {
    "serving.requests": "requests at once",
    "serving.context": "context of each",
    "serving.prefill": "tokens of prompts",
}
SERVED_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "serving.weights": ("weights", ("fp8", "int4", "mxfp4", "nvfp4")),
    "serving.kv": ("KV cache", ("fp8", "fp4")),
}
_ACTIONS = (
    ("serving", "requests=2x"),
    ("serving", "requests=4x"),
    ("serving", "weights=fp8"),
    ("serving", "weights=int4"),
    ("serving", "kv=fp8"),
    ("serving", "weights=fp8,kv=fp8,requests=2x"),
    ("serving", "draft=3,acceptance=0.7"),
    ("serving", "apart=decode"),
    ("serving", "apart=prefill"),
    ("serving", "prefill=2x"),
    ("serving", "dp=2"),
    ("remove_syncs", "on"),
    ("graphs", "on"),
    ("no_skew", "on"),
    ("overlap", "realistic"),
    ("balanced_experts", "on"),
)
_LEAST_CHUNK = 256  # tokens of prompts that are worth cutting
_NEWER = {True: ("mi325x", "mi355x"), False: ("h200", "b200")}  # GPUs of AMD, and of NVIDIA


# How advice is ordered, what cannot be tried unasked, and how to ask for that.
SERVED_ORDER = (
    "most tokens a second of a GPU first, other GPUs (of another price) last; not tried: tp and "
    "ep, which need the model's name (--serving model=NAME,tp=2)"
)


def server_actions(served: ServedIteration, device: Gpu | None) -> list[tuple[str, str]]:
    """Return the edits worth trying of a server on such a GPU."""
    actions = [*_ACTIONS]
    needed = round(served.requests * served.verified)
    if served.captured > needed > 0:
        actions.append(("serving", f"captured={needed}"))
    if served.prompts >= _LEAST_CHUNK:
        actions.append(("serving", f"chunk={served.prompts / 2:.0f}"))
    if device is None:
        return actions
    newer = (name for name in _NEWER[device.name.startswith("mi")] if name != device.name)
    return [*actions, *(("hardware", name) for name in newer)]


def join_settings(edits: Mapping[str, str]) -> dict[str, str]:
    """Return edits with the settings of a server's controls as one edit."""
    others = {name: value for name, value in edits.items() if not name.startswith("serving.")}
    settings = [
        f"{name.removeprefix('serving.')}={value}"
        for name, value in edits.items()
        if value and name not in others
    ]
    settings += filter(None, [others.get("serving", "")])
    return {**others, "serving": ",".join(settings)} if settings else others


def refuse_training_edits(asked: Sequence[tuple[str, str]]) -> None:
    """Refuse edits that change a training step, where a server's iterations were recorded."""
    for name, _ in asked:
        if name in _INSTEAD:
            instead = _INSTEAD[name]
            advice = f"ask {instead}" if instead else "a server has nothing of the kind"
            raise UsageError(
                f"--{name.replace('_', '-')} changes a training step, and these are iterations of a"
                f" server: {advice}"
            )
