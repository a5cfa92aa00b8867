"""Names in a picture stay text. Plotly takes markup in any text for markup, and a link for a link:
a kernel called `<a href=…>` would lead away from the page."""

import re
from typing import Any

# Of a trace and of an axis, what may hold names. Templates of what is shown on hover are ours.
_OF_TRACES = ("name", "x", "y", "labels", "text", "hovertext", "customdata")
_OF_AXES = ("categoryarray", "tickvals", "ticktext")
_OPENS = re.compile(r"<(?!br>|b>|/b>)")  # all but what our own texts are written with


def with_plain_names(fig: Any) -> Any:
    """Return the figure, in which no text opens a tag that leads anywhere."""
    for trace in fig.data:
        _set_plain(trace, _OF_TRACES)
    for axis in (*fig.select_xaxes(), *fig.select_yaxes()):
        _set_plain(axis, _OF_AXES)
        _set_plain(axis.title, ("text",))
    for annotation in fig.layout.annotations:
        _set_plain(annotation, ("text",))
    _set_plain(fig.layout.title, ("text",))
    return fig


def _set_plain(owner: Any, properties: tuple[str, ...]) -> None:
    for name in properties:
        if name not in owner:
            continue
        plain = _pass_through(owner[name])
        if plain is not owner[name]:
            owner[name] = plain


def _pass_through(value: Any) -> Any:
    """Return the value itself where there is nothing to change."""
    if isinstance(value, str):
        return _OPENS.sub("&lt;", value) if "<" in value else value
    if getattr(getattr(value, "dtype", None), "kind", "") in ("O", "U"):
        value = value.tolist()
    elif not isinstance(value, list | tuple):
        return value
    plain = [_pass_through(item) for item in value]
    same = all(new is old for new, old in zip(plain, value, strict=True))
    return value if same else plain
