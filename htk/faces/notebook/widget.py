"""The timeline in a notebook: a widget that asks the kernel, with no server beside it."""

from collections.abc import Callable
from typing import Any

from htk.answers.output.result import Result
from htk.base.core.extras import require_extra
from htk.base.errors import HtkError, UsageError
from htk.base.mappings import Fields
from htk.traces.timeline.answers import TraceTimeline
from htk.traces.timeline.page import COMPONENT, read_script, read_style
from htk.traces.timeline.rows import RowsTimeline

_PARTS = (*COMPONENT, "widget")


def build_timeline_widget(make: Callable[[bool], TraceTimeline]) -> Any:
    """Return the widget; `make` gives the timeline, its ranks' clocks aligned or not."""
    require_extra("notebook", "a timeline in a notebook")
    import anywidget

    kinds: Fields = {
        "_esm": read_script(*_PARTS) + "\nexport default { render: htkTimeline.widget };\n",
        "_css": read_style(),
        "__repr__": lambda _: "timeline: run the cell to see it",
    }
    widget = type("TimelineWidget", (anywidget.AnyWidget,), kinds)()
    asked = WidgetServer(make)

    def answer_message(_: Any, message: Fields, _buffers: Any) -> None:
        head, buffers = asked.answer(message)
        widget.send(head, buffers)

    widget.on_msg(answer_message)
    return widget


def timeline_of_rows(result: Result) -> Any:
    """Return the widget that shows the rows of an answer that have a start and an end."""
    rows = RowsTimeline(result.table, result.analysis.name)
    return build_timeline_widget(lambda _: rows)


class WidgetServer:
    """Answers the messages of one widget."""

    def __init__(self, make: Callable[[bool], TraceTimeline]) -> None:
        self._make = make
        self._timelines: dict[bool, TraceTimeline] = {}

    def answer(self, message: Fields) -> tuple[Fields, list[bytes]]:
        """Return the head and the buffers of the answer; an error is said in the head."""
        head: Fields = {"id": message.get("id")}
        query = message.get("given")
        try:
            if not isinstance(query, dict):
                raise UsageError("a message says what is given")
            aligned = query.get("aligned") != "0"
            if aligned not in self._timelines:
                self._timelines[aligned] = self._make(aligned)
            return head, [self._timelines[aligned].answer_text(str(message.get("question")), query)]
        except HtkError as error:
            return {**head, "error": str(error)}, []
