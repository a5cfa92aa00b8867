"""The pages composed by hand, one module each; the folder is the menu."""

import importlib
import pkgutil
from functools import cache

from htk.dashboard.page import Page


@cache
def composed() -> dict[str, Page]:
    """Every page of the folder by its path, in the order of the menu."""
    modules = [
        importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    ]
    pages: list[Page] = [module.PAGE for module in modules]
    return {page.path: page for page in sorted(pages, key=lambda p: p.order)}
