"""What runs here: versions, the active ingest engine, the cache folder."""

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from htk.core.version import VERSION

_PACKAGES = ("pyarrow", "numpy", "pandas", "plotly", "dash", "duckdb", "msgspec", "isal")
_EXTRAS = ("torch", "HolisticTraceAnalysis", "polars", "anywidget", "s3fs", "gcsfs", "viztracer")


def show(verbose: bool) -> None:
    click.echo(f"htk {VERSION}")
    if not verbose:
        return
    from htk.core.engine import engine
    from htk.io.store import cache_root

    click.echo(f"python {platform.python_version()} on {platform.platform()}")
    click.echo(f"ingest engine: {engine()}")
    click.echo(f"cache folder: {cache_root()}")
    for name in _PACKAGES:
        click.echo(f"{name} {_version(name)}")
    for name in _EXTRAS:
        click.echo(f"{name} {_version(name)} (optional)")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
