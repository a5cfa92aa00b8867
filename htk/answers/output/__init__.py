"""An answer on its way out: text, HTML, machine formats, figures.

In: tables and charts. Out: `Result` and its renderings. May not import anything that opens
traces; what draws a result registers itself with `result.register_face`.
"""

from collections.abc import Callable
from typing import Any

from htk.answers.output.result import register_face


def _load_text() -> Callable[..., Any]:
    from htk.answers.output.render import to_text

    return to_text


def _load_html() -> Callable[..., Any]:
    from htk.answers.output.html import to_html

    return to_html


def _load_figure() -> Callable[..., Any]:
    from htk.answers.output.figures import draw_figure

    return draw_figure


def _load_save() -> Callable[..., None]:
    from htk.answers.output.saved import save_result

    return save_result


register_face("file", _load_save)
register_face("text", _load_text)
register_face("html", _load_html)
register_face("figure", _load_figure)
