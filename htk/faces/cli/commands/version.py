"""What runs here: versions, the active ingest engine, the cache folder."""

import platform
from importlib.metadata import PackageNotFoundError, version

import click

from htk.base.core.version import DISTRIBUTION, VERSION

_PACKAGES = ("pyarrow", "numpy", "msgspec", "isal", "zstandard", "fsspec")
_EXTRAS = {
    "duckdb": "sql",
    "plotly": "plot",
    "pandas": "pandas",
    "dash": "dashboard",
    "polars": "polars",
    "anywidget": "notebook",
    "s3fs": "s3",
    "gcsfs": "gcs",
    "aiohttp": "http",
    "viztracer": "perfetto",
    "torch": "torch",
    "HolisticTraceAnalysis": "hta",
}


def show_version(verbose: bool) -> None:
    click.echo(f"htk {VERSION}")
    if not verbose:
        return
    from htk.base.core.engine import describe_engine
    from htk.base.io.cache_folder import cache_root

    click.echo(f"python {platform.python_version()} on {platform.platform()}")
    click.echo(f"ingest engine: {describe_engine()}")
    click.echo(f"cache folder: {cache_root()}")
    for name in _PACKAGES:
        click.echo(f"{name} {_find_version(name)}")
    for name, extra in _EXTRAS.items():
        click.echo(f"{name} {_find_version(name)} (optional: {DISTRIBUTION}[{extra}])")


def _find_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
