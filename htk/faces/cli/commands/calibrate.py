"""`htk calibrate`: learn a site's own figures from its recordings and measured steps."""

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from htk.base.core.humanize import make_visible, pluralize_count
from htk.base.errors import HtkError, UsageError

if TYPE_CHECKING:
    from htk.planning.sites.site import Site
    from htk.verdicts.sites.learning import MeasuredStep, RecordedRates

_MOST_BYTES = 16 << 20
_MOST_ROWS = 100_000
_MOST_FILES = 10_000
_STEP = {"step_ms": 1e6, "step_s": 1e9}  # ns
# Options of `htk plan` that describe no training job, beside those of a server.
_NO_JOB = ("show", "searching", "form", "output", "limit", "site")


@click.command("calibrate")
@click.argument("folder", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="site.toml",
    show_default=True,
    help="File to write to.",
)
@click.option("--no-cache", is_flag=True, help="Parse the files again and store nothing on disk.")
def command(folder: str, output: str, no_cache: bool) -> None:
    """What do this site's GPUs, links and jobs reach?

    DIR holds recordings, each in a folder of its own, and CSV files of measured steps: a column for
    each option of `htk plan` (model, gpu, nodes, micro_batch, …) and one named step_ms or step_s.
    The results are written to a small TOML file for `htk plan --site`.
    """
    from htk.base.core.defer_imports import spare_pandas
    from htk.planning.sites.site_file import write_site
    from htk.verdicts.sites.learning import learn_site

    spare_pandas()
    recordings = list(_list_recorded_rates(Path(folder), no_cache))
    steps = [step for file in _list_files(Path(folder), ".csv") for step in measured_steps(file)]
    if not recordings and not steps:
        raise UsageError(
            f"{folder}: neither a recording on a GPU of the catalogue nor a CSV of measured steps"
        )
    site = learn_site(recordings, steps)
    write_site(site, Path(output))
    _print_site(site, len(recordings), len(steps), output)


def _list_files(folder: Path, ending: str) -> list[Path]:
    files = sorted(p for p in folder.rglob(f"*{ending}") if p.is_file())
    return files[:_MOST_FILES]


def _list_recorded_rates(folder: Path, no_cache: bool) -> Iterator["RecordedRates"]:
    """Yield the rates of each folder that holds a recording; what is none is named and left out."""
    from htk.traces.trace.opening import OpenOptions, open_trace
    from htk.verdicts.sites.learning import recorded_rates

    folders = sorted({p.parent for p in _list_files(folder, "") if p.suffix.lower() != ".csv"})
    for path in folders:
        try:
            rates = recorded_rates(open_trace(str(path), OpenOptions(cache=not no_cache)))
        except HtkError as error:
            click.echo(
                f"htk: left out {make_visible(str(path))}: {make_visible(str(error))}", err=True
            )
            continue
        if rates is None:
            click.echo(
                f"htk: left out {make_visible(str(path))}: no GPU of the catalogue", err=True
            )
        else:
            yield rates


def measured_steps(path: Path) -> Iterator["MeasuredStep"]:
    """Yield the measured steps of a CSV file; its columns are options of `htk plan`."""
    if path.stat().st_size > _MOST_BYTES:
        raise UsageError(f"{path}: over {_MOST_BYTES >> 20} MiB, too large for measured steps")
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.DictReader(file)
        units = [name for name in _STEP if name in (reader.fieldnames or ())]
        if len(units) != 1:
            raise UsageError(f"{path}: one column named {' or '.join(_STEP)} was expected")
        try:
            for number, row in enumerate(reader, 2):
                if number > _MOST_ROWS:
                    raise UsageError(f"{path}: more than {_MOST_ROWS:,} rows")
                yield _parse_measured_step(row, units[0], f"{path}, line {number}")
        except csv.Error as error:
            raise UsageError(f"{path}: not CSV: {error}") from error


def _parse_measured_step(row: dict[str | None, Any], unit: str, where: str) -> "MeasuredStep":
    from htk.faces.cli.commands.plan import command as plan_command
    from htk.faces.cli.commands.plan_options import build_planned_job
    from htk.verdicts.sites.learning import MeasuredStep

    words: list[str] = []
    for name, value in row.items():
        if name is None or not isinstance(value, str):
            raise UsageError(f"{where}: as many values as columns were expected")
        if name != unit and value.strip():
            words.append(f"--{name.strip().replace('_', '-')}={value.strip()}")
    try:
        step_ns = float(row[unit]) * _STEP[unit]
    except (ValueError, TypeError):
        raise UsageError(f"{where}: {unit}: a number was expected, not {row[unit]!r}") from None
    try:
        context = plan_command.make_context("plan", words)
        arguments = dict(context.params)
        for name in _NO_JOB:
            del arguments[name]
        job = build_planned_job(arguments)
    except click.ClickException as error:
        raise UsageError(f"{where}: {error.format_message()}") from error
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error
    if not 0 < step_ns < 1e18:
        raise UsageError(f"{where}: {unit}: a positive time was expected, not {row[unit]!r}")
    return MeasuredStep(job, step_ns)


def _print_site(site: "Site", recordings: int, steps: int, output: str) -> None:
    from htk.physics.hardware import gpu
    from htk.planning.sites.own_site import own_site_file
    from htk.planning.sites.site import compute_posterior

    write = sys.stdout.write
    write(
        f"{pluralize_count(recordings, 'recording')}, {pluralize_count(steps, 'measured step')}\n"
    )
    for name, figures in sorted(site.gpus.items()):
        write(f"\n{gpu(name).device_name}\n")
        for key in ("products", "memory", "links", "adapters"):
            rate = getattr(figures, key)
            if rate is not None:
                from_ = pluralize_count(rate.recordings, "recording")
                write(f"  {key:<9} {rate.ratio:.2f} of what a plan expects ({from_})\n")
        if figures.steps is not None:
            moved, sigma = compute_posterior(figures.steps, _PRIOR)
            write(
                f"  steps     plans move by {100 * (math.exp(moved) - 1):+.0f} %; one sigma "
                f"of {100 * _PRIOR:.0f} % becomes {100 * sigma:.0f} %\n"
            )
    write(f"\nwritten to {output}; htk plan and htk whatif take it with --site {output},\n")
    write(f"or by themselves from {own_site_file()}\n")


_PRIOR = 0.2  # of a plan's step, for the words above
