"""Markup of a page as one component. Dash lets each component look at the state of the whole page
whenever anything changes, so that what never changes by itself had better be none."""

import copy
from collections.abc import Sequence
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

_HTML = html.Div._namespace


# ruff: noqa: RUF012 Dash declares these lists so


class Markup(Component):
    """Elements as plain data, with places for components among them; assets/markup.js draws it."""

    _namespace = "htk_dash"
    _type = "Markup"
    _prop_names = ["children", "tree"]
    _valid_wildcard_attributes: list[str] = []
    available_properties = _prop_names
    available_wildcard_properties: list[str] = []

    def __init__(self, children: Sequence[Any] = (), tree: Any = None) -> None:
        super().__init__(children=list(children), tree=tree)


class Nearby(Component):
    """A component of a known height that is made when its place comes near the window."""

    _namespace = "htk_dash"
    _type = "Nearby"
    _prop_names = ["children", "height", "label"]
    _valid_wildcard_attributes: list[str] = []
    available_properties = _prop_names
    available_wildcard_properties: list[str] = []

    def __init__(self, children: Any = None, height: int = 0, label: str = "") -> None:
        super().__init__(children=children, height=height, label=label)


class PagePart(Component):
    """The place of a part of a page: wanted when its turn comes, then filled by a callback."""

    _namespace = "htk_dash"
    _type = "PagePart"
    _prop_names = ["children", "id", "className", "height", "isWanted", "isAnswered"]
    _valid_wildcard_attributes: list[str] = []
    available_properties = _prop_names
    available_wildcard_properties: list[str] = []

    def __init__(self, page: str, name: str, children: Any = None, height: int = 0) -> None:
        self.name = name
        self.kind = "part" if height else "part headline"
        part_id = {"type": "part", "page": page or "overview", "part": name}
        super().__init__(children=children, id=part_id, className=self.kind, height=height)


def compact_components(tree: Any) -> Any:
    """Return the same page of as few components as can be: elements that no callback knows, and
    links, become data; what has an id or a behaviour stays, in its place among them."""
    live: list[Any] = []
    data = _convert_to_data(tree, live)
    if not isinstance(data, list | dict) or (len(live) == 1 and data == {"live": 0}):
        return live[0] if live else data
    return Markup(live, data)


def _convert_to_data(value: Any, live: list[Any]) -> Any:
    """Return elements as data; components among them go to `live`, and leave their number."""
    if isinstance(value, list | tuple):
        return [_convert_to_data(each, live) for each in value]
    if not isinstance(value, Component):
        return value
    is_link = isinstance(value, dcc.Link)
    if getattr(value, "id", None) is None and (is_link or value._namespace == _HTML):
        all_props = value.to_plotly_json()["props"]
        props = {name: prop for name, prop in all_props.items() if name != "children"}
        tag = "link" if is_link else value._type.lower()
        return {
            "tag": tag,
            "props": props,
            "inside": _convert_to_data(all_props.get("children"), live),
        }
    live.append(_with_compact_children(value))
    return {"live": len(live) - 1}


def _with_compact_children(component: Component) -> Component:
    """Return a component that stays one; what it holds is made compact."""
    children = getattr(component, "children", None)
    if isinstance(component, Markup) or not isinstance(children, list | tuple | Component):
        return component
    own = copy.copy(component)  # the given one may be kept for another visit
    own.children = compact_components(children)
    return own
