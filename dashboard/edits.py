"""What a visitor may change about a step: the controls, and how the address keeps what they say.

A control's id says which edit it is of; those of servers (`serving.requests`) are parts of one,
`serving=requests=2x,kv=fp8`. Saved scenarios are in the address too, so that a link shares them:
`name~batch=2x~sharding=ddp|other~…`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from htk.base.mappings import NamedTables
from htk.dashboard.components import MADE_ON_OPENING, spell_attributes
from htk.dashboard.page import Visit
from htk.dashboard.url_state import UrlState
from htk.physics.hardware import load_catalogue
from htk.whatif.edits import all_edits
from htk.whatif.label import SHARDINGS
from htk.whatif.served_iteration import ServedIteration
from htk.whatif.server_edits import (
    SERVED_CHOICES,
    SERVED_FACTORS,
    TRAINING_EDITS,
    join_settings,
)

_AS_IS = "as recorded"
_FACTORS = ("0.25x", "0.5x", "1x", "2x", "4x", "8x", "16x")
_SLIDERS = {"batch": "micro-batch", "network": "network bandwidth", "host": "CPU speed"}
_CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "sharding": ("sharding", SHARDINGS),
    "overlap": ("overlap", ("perfect", "realistic", "serial")),
    "checkpointing": ("checkpointing", ("on", "off")),
    "precision": ("precision", ("bf16", "fp8", "fp32")),
}
_SERVING = "serving"
_TEXTS = {"world": ("nodes × GPUs", "4x8"), "replace": ("replace a kernel", "PATTERN=2x")}
KNOWN = {one.NAME: one.HELP for one in all_edits()}
PRICE = "price"
SAVED = "saved"
Edits = tuple[tuple[str, str], ...]


def draw_edit_controls(visit: Visit) -> list[Any]:
    """Sliders and choices as the address has them, and what saves them: those that can apply."""
    edits = _split_server_edits(dict(edits_of(visit.view)))
    served = is_of_server(visit)
    senseless = {*(TRAINING_EDITS if served else ()), *(_OF_SEVERAL if is_lone(visit) else ())}
    offered = [name for name in KNOWN if name not in senseless]
    sliders = {**(SERVED_FACTORS if served else {}), **_SLIDERS}
    choices = {**(SERVED_CHOICES if served else {}), **_CHOICES}
    choices["hardware"] = ("hardware", tuple(sorted(load_catalogue())))
    first = [n for n in (*sliders, *choices, *_TEXTS) if n in offered or "." in n]
    more = [_draw_text_field(n, label_of(n), "", edits) for n in offered if n not in first]
    fields = [
        *(_draw_choice(n, *choices[n], edits) for n in first if n in choices),
        *(_draw_text_field(n, *_TEXTS[n], edits) for n in first if n in _TEXTS),
        _draw_field(PRICE, visit.option(PRICE, ""), label_of(PRICE)),
    ]
    opened = any(name in edits for name in offered if name not in first)
    return [
        *(_draw_edit_slider(name, edits) for name in first if name in sliders),
        html.Div(fields, className="fields"),
        html.Details([html.Summary("more edits"), html.Div(more, className="fields")], open=opened),
        dmc.Group(
            [
                dmc.TextInput(
                    id="scenario-name",
                    placeholder="name",
                    size="xs",
                    w=130,
                    **spell_attributes(aria_label="name of the scenario"),
                ),
                html.Button("Save scenario", id="scenario-save", className="chip"),
                html.A(
                    "Reset",
                    href="/whatif" + UrlState(run=visit.view.run).search(),
                    className="export",
                ),
            ],
            gap="xs",
            mt="sm",
        ),
    ]


def _tables_of(visit: Visit) -> NamedTables:
    trace = visit.runs.trace(visit.view.run)
    return trace.tables if trace is not None else {}


def is_of_server(visit: Visit) -> bool:
    """Return whether the run marks iterations of a server."""
    tables = _tables_of(visit)
    return bool(tables) and bool(tables["server_marks"].num_rows)


def is_lone(visit: Visit) -> bool:
    """Return whether nothing is known of other ranks."""
    tables = _tables_of(visit)
    return not tables or not tables["collectives"].num_rows


def _split_server_edits(edits: dict[str, str]) -> dict[str, str]:
    """Return edits with those of a server apart, as its controls show them; what has none stays."""
    rest = []
    parted = dict(edits)
    for pair in parted.pop(_SERVING, "").split(","):
        name, _, value = pair.partition("=")
        control = f"{_SERVING}.{name.strip()}"
        if control in SERVED_CHOICES or (control in SERVED_FACTORS and value in _FACTORS):
            parted[control] = value
        elif pair:
            rest.append(pair)
    return {**parted, _SERVING: ",".join(rest)} if rest else parted


_OF_SEVERAL = ("network", "overlap", "fix_rank", "sharding")
PRESETS = (
    ("Twice the batch", "batch", "2x"),
    ("ZeRO-3", "sharding", "full_shard"),
    ("Hybrid shard", "sharding", "hybrid_shard"),
    ("Twice the network", "network", "bandwidth=2x"),
    ("All communication hidden", "overlap", "perfect"),
    ("No stragglers", "fix_rank", "all"),
    ("Fused norm", "replace", "(?i)rms_?norm=fused"),
    ("CUDA graphs", "graphs", "on"),
    ("H200", "hardware", "h200"),
)


_OF_SERVERS = (
    ("Twice the requests", "serving", "requests=2x"),
    ("Weights in FP8", "serving", "weights=fp8"),
    ("KV cache in FP8", "serving", "kv=fp8"),
    ("Drafting three tokens", "serving", "draft=3,acceptance=0.7"),
    ("Twice the prompts", "serving", "prefill=2x"),
    ("Prefill elsewhere", "serving", "apart=decode"),
    ("All communication hidden", "overlap", "perfect"),
    ("CUDA graphs", "graphs", "on"),
    ("H200", "hardware", "h200"),
)
_ANSWERING = ("requests", "kv", "draft")


def draw_presets(visit: Visit, served: ServedIteration | None) -> list[Any]:
    """Questions that people ask first, as links: those that the recording can answer."""
    tables = _tables_of(visit)
    sizes = tables["ranks"]["world_size"].to_pylist() if tables else []
    world = max((size for size in sizes if size), default=0)
    doubled = (("Twice the GPUs", "world", str(2 * world)),) if world else ()
    offered = [*PRESETS, *doubled] if served is None else [*_OF_SERVERS]
    lone = is_lone(visit)
    offered = [
        preset
        for preset in offered
        if (preset[1] != "hardware" or preset[2] in load_catalogue())
        and not (lone and preset[1] in _OF_SEVERAL)
        and (preset[1] != "serving" or served is None or _is_served_by(served, preset[2]))
    ]
    return [
        dcc.Link(words, href=build_whatif_address(visit.view, ((name, value),)))
        for words, name, value in offered
    ]


def _is_served_by(served: ServedIteration, setting: str) -> bool:
    """Return whether iterations read or answer what a setting changes."""
    if setting.startswith(_ANSWERING):
        return served.requests > 0
    if setting.startswith("prefill"):
        return served.prompts > 0
    return "apart" not in setting or (served.prompts > 0 and served.requests > 0)


def _draw_edit_slider(name: str, edits: dict[str, str]) -> Any:
    value = edits.get(name, "1x").removeprefix("bandwidth=")
    position = _FACTORS.index(value) if value in _FACTORS else _FACTORS.index("1x")
    bar = dmc.Slider(
        id={"type": "edit", "name": name},
        value=position,
        min=0,
        max=len(_FACTORS) - 1,
        step=1,
        marks=[{"value": k, "label": label} for k, label in enumerate(_FACTORS)],
        label=None,
        updatemode="mouseup",
        thumbLabel=label_of(name),
        mb=26,
    )
    return html.Div([html.Div(label_of(name), className="control-label"), bar])


def _draw_choice(name: str, label: str, values: Sequence[str], edits: dict[str, str]) -> Any:
    chosen = edits.get(name, _AS_IS)
    data = [_AS_IS, *values, *([] if chosen in (_AS_IS, *values) else [chosen])]
    control_id = {"type": "edit", "name": name}
    return dmc.Select(
        id=control_id,
        label=label,
        data=data,
        value=chosen,
        allowDeselect=False,
        size="xs",
        comboboxProps=MADE_ON_OPENING,
    )


def _draw_text_field(name: str, label: str, hint: str, edits: dict[str, str]) -> Any:
    return _draw_field(name, edits.get(name, ""), label, hint or KNOWN[name].rstrip(".")[:60])


def _draw_field(name: str, value: str, label: str, placeholder: str = "") -> Any:
    """Return a field of text, and the place where it is said what is wrong with it."""
    field = dmc.TextInput(
        id={"type": "edit", "name": name},
        value=value,
        debounce=400,
        size="xs",
        label=label,
        placeholder=placeholder,
    )
    error = html.Div(id={"type": "edit-error", "name": name}, className="field-error", role="alert")
    return html.Div([field, error])


def label_of(name: str) -> str:
    """Return how a field of an edit is called."""
    if name == PRICE:
        return "price of a GPU-hour"
    shown = _TEXTS.get(name) or _CHOICES.get(name) or SERVED_CHOICES.get(name)
    if shown is not None:
        return shown[0]
    return {**_SLIDERS, **SERVED_FACTORS}.get(name) or name.replace("_", " ")


def _spell_edit_value(name: str, value: Any) -> str:
    """Return what a control says, as the edit is written; empty: as recorded."""
    if name in _SLIDERS or name in SERVED_FACTORS:
        text = _FACTORS[value] if isinstance(value, int) and 0 <= value < len(_FACTORS) else "1x"
        if text == "1x":
            return ""
        return f"bandwidth={text}" if name == "network" else text
    return "" if value in (None, _AS_IS) else str(value).strip()


def edits_of(view: UrlState) -> Edits:
    """Return what the address changes."""
    return tuple((name, view.options[name]) for name in KNOWN if view.options.get(name))


def read_chosen_edits(ids: list[dict[str, str]], values: list[Any]) -> dict[str, str]:
    """Return what the controls say."""
    by_control = {
        i["name"]: _spell_edit_value(i["name"], v) for i, v in zip(ids, values, strict=True)
    }
    return join_settings(by_control)


def build_moved_view(
    search: str, ids: list[dict[str, str]], values: list[Any], saved: str
) -> UrlState:
    """Return the view that the controls and the saved scenarios make of the address."""
    options = {**read_chosen_edits(ids, values), SAVED: saved}
    return replace(
        UrlState.from_address("whatif", search), options={k: v for k, v in options.items() if v}
    )


def strip_separators(name: str | None) -> str:
    """Return a name without the signs that part scenarios."""
    return " ".join((name or "").replace("~", " ").replace("|", " ").split())[:40]


def saved_of(text: str) -> list[tuple[str, Edits]]:
    """Scenarios by name."""
    scenarios = []
    for scenario in filter(None, text.split("|")):
        name, *pairs = scenario.split("~")
        edits = [tuple(pair.split("=", 1)) for pair in pairs if "=" in pair]
        scenarios.append((name, tuple((k, v) for k, v in edits if k in KNOWN)))
    return scenarios


def write_scenarios(saved: Sequence[tuple[str, Edits]]) -> str:
    return "|".join("~".join([name, *(f"{k}={v}" for k, v in edits)]) for name, edits in saved)


def build_whatif_address(view: UrlState, edits: Edits) -> str:
    kept = {k: v for k, v in view.options.items() if k in (SAVED, PRICE)}
    return "/whatif" + UrlState("whatif", view.filters, {**kept, **dict(edits)}, view.run).search()
