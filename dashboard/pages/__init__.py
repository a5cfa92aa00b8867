"""The pages composed by hand, one module each; the folder is the menu."""

import importlib
import pkgutil
from dataclasses import replace
from functools import cache

from htk.analyses import ANALYSES
from htk.answers.output.result import Result
from htk.base.errors import UnknownAnalysis
from htk.base.mappings import Facts
from htk.dashboard.page import Page, Visit
from htk.dashboard.url_state import spell_option


@cache
def load_pages() -> dict[str, Page]:
    """Return every page of the folder by its path, in the order of the menu."""
    names = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    pages: list[Page] = [importlib.import_module(name).PAGE for name in names]
    return {page.path: page for page in sorted(pages, key=lambda p: p.order)}


def needs_no_run(path: str) -> bool:
    """Return whether there is a page of that path that shows something with no recording open."""
    page = load_pages().get(path)
    return page is not None and not page.needs_run


def answer_on_page(visit: Visit, name: str, options: Facts) -> Result:
    """Return an analysis, or what a page answers by itself under options of its own."""
    if name in ANALYSES:
        return visit.ask(name, **options)
    for page in load_pages().values():
        if name in page.answers:
            shown_options = {k: spell_option(v) for k, v in options.items()}
            return page.answers[name](
                replace(visit, view=replace(visit.view, options=shown_options))
            )
    raise UnknownAnalysis(f"there is no table {name!r}")
