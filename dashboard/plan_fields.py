"""What a visitor says of a job that is planned: the fields, and what is wrong with which.

The fields are in the address, so that a link shares the plan. An address may hold anything: each
value is checked, and what cannot be is said at its field.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import dash_mantine_components as dmc

from htk.base.errors import UsageError
from htk.base.mappings import Facts, Fields
from htk.dashboard.components import MADE_ON_OPENING
from htk.physics.hardware import gpu, load_catalogue
from htk.physics.memory import OPTIMIZERS
from htk.physics.network import NETWORKS, named_network
from htk.physics.presets import PRESETS, decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.precision import RECIPES, matrix_format

USUAL = "usual of the GPU"
_MOST_COUNTS = 6  # numbers of GPUs that are searched at once
_MOST_GPUS = 1 << 17
_MOST_TOKENS = 1 << 22  # of a sequence


@dataclass(frozen=True)
class PlanField:
    label: str
    default: str
    hint: str = ""
    choices: tuple[str, ...] = ()


FIELDS: Mapping[str, PlanField] = {
    "model": PlanField("model", "llama3-70b", choices=tuple(sorted(PRESETS))),
    "gpu": PlanField("GPU", "h100", choices=tuple(load_catalogue())),
    "gpus": PlanField("number of GPUs", "64", "64, or 64, 128, 256"),
    "node": PlanField("GPUs of a node", "8"),
    "network": PlanField("network between nodes", USUAL, choices=(USUAL, *NETWORKS)),
    "seq": PlanField("sequence length", "8192", "tokens"),
    "batch": PlanField("global batch", "", "about 4M tokens"),
    "memory": PlanField("memory limit, GiB", "", "all of the GPU"),
    "precision": PlanField("precision", "bf16", choices=tuple(RECIPES)),
    "optimizer": PlanField("optimizer", "adam", choices=tuple(OPTIMIZERS)),
    "price": PlanField("price of a GPU-hour", "", "for the cost"),
    "tokens": PlanField("tokens to train, billions", "", "for the days"),
}


@dataclass(frozen=True)
class PlanRequest:
    """What the fields ask for: a job without its layout, on some numbers of GPUs."""

    jobs: tuple[PlannedJob, ...]
    batch: int | None


class FieldErrors(UsageError):
    """What is wrong, by field."""

    def __init__(self, by_field: Mapping[str, str]) -> None:
        self.by_field = by_field
        labels = (f"{FIELDS[name].label}: {text}" for name, text in by_field.items())
        super().__init__("; ".join(labels))


def draw_plan_inputs(options: Mapping[str, str]) -> list[Any]:
    """Return a control for each field, as the address has it, with what is wrong with it."""
    wrong = errors_of(options)
    return [_draw_input(name, options, wrong.get(name)) for name in FIELDS]


def _draw_input(name: str, options: Mapping[str, str], wrong: str | None) -> Any:
    field = FIELDS[name]
    value = options.get(name, FIELDS[name].default)
    shared: Fields = {
        "id": {"type": "plan-field", "name": name},
        "label": field.label,
        "value": value,
        "error": wrong,
        "size": "xs",
    }
    if not field.choices:
        return dmc.TextInput(placeholder=field.hint, debounce=400, **shared)
    data = [*field.choices, *([] if value in field.choices else [value])]
    return dmc.Select(
        data=data, searchable=len(data) > 8, allowDeselect=False, nothingFoundMessage="none",
        comboboxProps=MADE_ON_OPENING, **shared,
    )  # fmt: skip


def errors_of(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return what is wrong, by field."""
    try:
        read_request(options)
    except FieldErrors as error:
        return error.by_field
    return {}


def read_request(options: Mapping[str, str]) -> PlanRequest:
    """Return what the fields ask for."""
    wrong: dict[str, str] = {}

    def read_value(name: str, read: Callable[[str], Any]) -> Any:
        try:
            return read(options.get(name, FIELDS[name].default).strip())
        except UsageError as error:
            wrong[name] = str(error)

    read = {name: read_value(name, _READERS[name]) for name in FIELDS}
    if not wrong:
        wrong.update(_find_misfits(read))
    if wrong:
        raise FieldErrors(wrong)
    try:
        jobs = tuple(_build_job(read, count) for count in read["gpus"])
    except UsageError as error:
        raise FieldErrors({"gpus": str(error)}) from None
    return PlanRequest(jobs, read["batch"])


def _find_misfits(read: Facts) -> dict[str, str]:
    """Return what does not go together."""
    wrong = {}
    device = read["gpu"]
    node = read["node"]
    uneven = [count for count in read["gpus"] if count > node and count % node]
    if uneven:
        wrong["gpus"] = f"{uneven[0]} is no multiple of the {node} GPUs of a node"
    number_format = matrix_format(read["precision"])
    if number_format is not None and not device.has(number_format):
        wrong["precision"] = f"{device.name} has no matrix products in {number_format}"
    free = device.memory_bytes / 2**30
    if read["memory"] is not None and read["memory"] > free:
        wrong["memory"] = f"{device.name} has {free:.0f} GiB"
    return wrong


def _build_job(read: Facts, count: int) -> PlannedJob:
    device = read["gpu"]
    per_node = min(read["node"], count)
    if read["memory"] is not None:
        device = device.limited_to(read["memory"])
    between, joined = read["network"]
    job = PlannedJob(
        read["model"], device, count // per_node, per_node, seq=read["seq"], strategy="zero1",
        precision=read["precision"], optimizer=read["optimizer"], price=read["price"],
        run_tokens=read["tokens"], fabric=between,
    )  # fmt: skip
    return job if joined is None else replace(job, domain=min(joined, count))


def _read_choice(name: str) -> Callable[[str], str]:
    def read_text(text: str) -> str:
        if text not in FIELDS[name].choices:
            raise UsageError(f"there is no {text[:40]!r}")
        return text

    return read_text


def _read_count(most: int) -> Callable[[str], int]:
    def read_text(text: str) -> int:
        digits = text.replace(",", "").replace(" ", "")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 12):
            raise UsageError("a whole number was expected")
        if not 1 <= int(digits) <= most:
            raise UsageError(f"1 to {most:,} were expected")
        return int(digits)

    return read_text


def _parse_counts(text: str) -> tuple[int, ...]:
    counts = {_read_count(_MOST_GPUS)(piece) for piece in text.split(",")}
    if len(counts) > _MOST_COUNTS:
        raise UsageError(f"at most {_MOST_COUNTS} numbers at once")
    return tuple(sorted(counts))


def _parse_positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UsageError("a number was expected") from None
    if not (0 < number < 1e9 and math.isfinite(number)):
        raise UsageError("a positive number was expected")
    return number


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda text: read(text) if text else None


_READERS: Mapping[str, Callable[[str], Any]] = {
    "model": lambda text: decoder(_read_choice("model")(text)),
    "gpu": lambda text: gpu(_read_choice("gpu")(text)),
    "gpus": _parse_counts,
    "node": _read_count(72),
    "network": lambda text: (None, None) if text == USUAL else named_network(text),
    "seq": _read_count(_MOST_TOKENS),
    "batch": _or_none(_read_count(1 << 24)),
    "memory": _or_none(_parse_positive),
    "precision": _read_choice("precision"),
    "optimizer": _read_choice("optimizer"),
    "price": _or_none(_parse_positive),
    "tokens": lambda text: 1e9 * _parse_positive(text) if text else None,
}
