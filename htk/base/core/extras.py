"""Packages that only some commands need: each comes with an extra of the distribution."""

from collections.abc import Mapping
from importlib.util import find_spec

from htk.base.core.version import DISTRIBUTION
from htk.base.errors import MissingPackage

# What each extra brings that htk imports by name.
EXTRAS: Mapping[str, tuple[str, ...]] = {
    "dashboard": ("dash", "dash_ag_grid", "dash_mantine_components", "plotly", "waitress"),
    "hta": ("hta",),
    "mcp": ("mcp",),
    "notebook": ("anywidget", "ipywidgets"),
    "pandas": ("pandas",),
    "perfetto": ("waitress",),
    "plot": ("plotly",),
    "polars": ("polars",),
    "ray": ("ray",),
    "sql": ("duckdb",),
    "torch": ("torch",),
    "xlsx": ("xlsxwriter",),
}


def spell_install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def require_extra(extra: str, purpose: str) -> None:
    """Raise MissingPackage, naming the purpose, unless every package of the extra is installed."""
    missing = [name for name in EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise MissingPackage(f"{purpose} needs {', '.join(missing)}: {spell_install(extra)}")
