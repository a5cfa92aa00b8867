"""An answer as a file, in the form that the file's ending asks for."""

from html import escape
from pathlib import Path

from htk.answers.output.html import to_html
from htk.answers.output.render import FORMATS, write_result
from htk.answers.output.result import Result
from htk.base.core.whole_file import write_whole
from htk.base.errors import UsageError

_OTHERS = ("table", "json-relative")  # forms that no ending names
_ENDINGS = (*(form for form in FORMATS if form not in _OTHERS), "html")


def save_result(result: Result, path: str) -> None:
    """Write a result; a page for people has its first rows, every other form has all."""
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in _ENDINGS:
        forms = ", ".join(f".{form}" for form in _ENDINGS)
        raise UsageError(f"{path}: its ending chooses the form, one of {forms}")
    if ending == "html":
        title = escape(result.analysis.question)
        head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        write_whole(path, f"{head}<body>{to_html(result)}</body></html>\n")
    else:
        write_result(result, ending, path, limit=max(len(result), 1))
