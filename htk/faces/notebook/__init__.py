"""A trace in Jupyter: `Session` with a method for each question, its card, its widgets.

In: a trace. Out: `Session`. May not import the command line or the dashboard.
"""

from collections.abc import Callable
from typing import Any

from htk.answers.output.result import register_face


def _load_timeline() -> Callable[..., Any]:
    from htk.faces.notebook.widget import timeline_of_rows

    return timeline_of_rows


register_face("timeline", _load_timeline)
