"""Amounts that hold until they change, of many ranks: ranks that do the same are one line, their
median, in a band from the lowest to the highest of them; a rank unlike all others has its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from htk.answers.output.figure_colours import colour_of
from htk.answers.output.tokens import DARK, blend_colour, series_colour
from htk.base.core.humanize import format_int_ranges, pluralize_count

_ALIKE = 0.02  # of the highest: ranks whose highest and mean values differ by less are one line
_MOST_GROUPS = 4  # of ranks; those of further ones share the last
_MOST_TIMES = 1000  # of a band: of more the highest and lowest of equal slices of time are drawn
_INSTANT = 1e-9  # between values of one time, so that the first is seen: far below any clock
_DASHES = ("solid", "dash", "dot", "dashdot")
_OF = ("category", "device_kind", "device")  # what of a rank a row is of

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """One rank's amount over time: `values[k]` holds from `times[k]` on, the last for no time."""

    series: str
    rank: int
    recording: int
    times: Floats
    values: Floats

    def mean(self) -> float:
        length = self.times[-1] - self.times[0]
        if not length:
            return float(self.values[-1])
        return float((np.diff(self.times) * self.values[:-1]).sum() / length)

    def within(self, edges: Floats) -> tuple[Floats, Floats]:
        """Return the lowest and the highest value from each edge to the next; nan: not recorded."""
        times = np.sort(np.concatenate([self.times, edges]))
        held = np.searchsorted(self.times, times, side="right") - 1
        amounts = np.where((held < 0) | (times > self.times[-1]), np.nan, self.values[held])
        first = np.searchsorted(times, edges, side="left")
        return np.fmin.reduceat(amounts, first), np.fmax.reduceat(amounts, first)


@dataclass(frozen=True)
class RankGroup:
    """Ranks that do the same, in the order of their numbers."""

    series: str
    curves: list[Curve]

    @property
    def ranks(self) -> list[int]:
        return sorted({curve.rank for curve in self.curves})

    def name(self, *, alone: bool) -> str:
        """Return how a legend calls it; `alone`: one series has no name of its own."""
        ranks = self.ranks
        numbers = format_int_ranges(ranks)
        words = f"rank{'s' * (len(ranks) > 1)} {numbers}"
        words = pluralize_count(len(ranks), "rank") if numbers.endswith("…") else words
        return words if alone else f"{self.series}, {words}"


def curves_of(
    table: pa.Table, series: Sequence[str], times: Sequence[Any], values: Sequence[Any]
) -> list[Curve]:
    """Return a curve for each series, rank, device and recording; rows without a value are none."""
    columns = [
        table[name].to_pylist() if name in table.column_names else [0] * table.num_rows
        for name in ("rank", "cycle", *_OF)
    ]
    points: dict[tuple[Any, ...], list[tuple[float, float]]] = {}
    keys = zip(series, *columns, strict=True)
    for key, time, value in zip(keys, times, values, strict=True):  # a picture's: some thousands
        if time is not None and value is not None:
            points.setdefault(key, []).append((time, value))
    return [
        Curve(
            _name_group(key, list(points)), key[1] or 0, key[2] or 0, *_order_points(np.array(of))
        )
        for key, of in points.items()
    ]


def _order_points(points: Floats) -> tuple[Floats, Floats]:
    """Return times in order and their values; of one instant each stands a little later."""
    times, values = points[np.argsort(points[:, 0], kind="stable")].T
    again = np.arange(len(times)) - np.searchsorted(times, times, side="left")
    return times + again * _INSTANT, values


def _name_group(key: tuple[Any, ...], keys: list[tuple[Any, ...]]) -> str:
    """Return the name of a series: its category, and its device where a rank has several."""
    series, _, _, category, *where = key
    beside = {tuple(k[4:]) for k in keys if k[:4] == key[:4]}
    words = [category or series, *([f"{where[0]} {where[1]}"] if len(beside) > 1 else [])]
    return ", ".join(words)


def groups_of(curves: Sequence[Curve]) -> list[RankGroup]:
    """Return the groups of ranks that do the same, those of the lowest ranks first."""
    groups: list[RankGroup] = []
    for series in dict.fromkeys(curve.series for curve in curves):
        of_rank: dict[int, list[Curve]] = {}
        for curve in curves:
            if curve.series == series:
                of_rank.setdefault(curve.rank, []).append(curve)
        alike: list[list[Curve]] = []
        for rank in sorted(of_rank):
            twins = next((group for group in alike if _is_same(group, of_rank[rank])), None)
            if twins is None:
                alike.append(list(of_rank[rank]))
            else:
                twins += of_rank[rank]
        if len(alike) > _MOST_GROUPS:  # the largest stand, the others are one band
            alike.sort(key=len, reverse=True)
            alike[_MOST_GROUPS - 1 :] = [[c for group in alike[_MOST_GROUPS - 1 :] for c in group]]
        groups += [RankGroup(series, group) for group in alike]
    return groups


def _is_same(group: list[Curve], curves: list[Curve]) -> bool:
    """Return whether a rank does what the first rank of a group does."""
    first = [curve for curve in group if curve.rank == group[0].rank]
    if len(first) != len(curves):
        return False
    return all(
        max(abs(a.values.max() - b.values.max()), abs(a.mean() - b.mean()))
        <= _ALIKE * max(a.values.max(), b.values.max())
        for a, b in zip(first, curves, strict=True)
    )


def band_of(curves: Sequence[Curve]) -> list[Floats]:
    """Return rows of times at which anything changes, and of the lowest, median and highest value
    of the ranks from each on: a piece for each stretch that is recorded without a hole."""
    pieces = []
    for recording in sorted({curve.recording for curve in curves}):
        together = [curve for curve in curves if curve.recording == recording]
        ends = np.array([curve.times[-1] for curve in together])
        over = ends[ends < ends.max()] + _INSTANT  # from there on the others' alone
        edges = np.unique(np.concatenate([over, *(curve.times for curve in together)]))
        if len(edges) > _MOST_TIMES:
            edges = np.linspace(edges[0], edges[-1], _MOST_TIMES)
        low, high = (
            np.array(rows) for rows in zip(*(c.within(edges) for c in together), strict=True)
        )
        band = np.array(
            [edges, np.fmin.reduce(low), _compute_column_medians(high), np.fmax.reduce(high)]
        )
        empty = np.flatnonzero(np.isnan(band[1]))
        pieces += [_find_band_changes(piece) for piece in np.split(band, empty, axis=1)]
    return [piece for piece in pieces if piece.shape[1]]


def _compute_column_medians(rows: Floats) -> Floats:
    """Return the median of each column, of what it has: nan where that is nothing."""
    ordered = np.sort(rows, axis=0)
    count = (~np.isnan(rows)).sum(axis=0)
    low = np.take_along_axis(ordered, np.maximum(((count - 1) // 2), 0)[None], axis=0)[0]
    high = np.take_along_axis(ordered, np.maximum((count // 2), 0)[None], axis=0)[0]
    return np.asarray((low + np.where(count > 0, high, np.nan)) / 2)


def _find_band_changes(band: Floats) -> Floats:
    """Return what differs from the column before, and the end."""
    band = band[:, ~np.isnan(band[1])]
    kept = np.r_[True, (np.diff(band[1:]) != 0).any(axis=0)][: band.shape[1]]
    kept[-1:] = True
    return band[:, kept]


def step_bands(curves: Sequence[Curve], palette: dict[str, str], unit: str) -> list[Any]:
    """Draw the curves: a line for each group of ranks, in a band where there are several."""
    groups = groups_of(curves)
    alone = len({group.series for group in groups}) == 1
    traces = []
    before: dict[str, int] = {}
    for number, group in enumerate(groups):
        series_number = before.setdefault(group.series, len(before))
        again = sum(other.series == group.series for other in groups[:number])
        if alone:
            own = series_colour(group.ranks[0], dark=palette is DARK)
        else:
            own = colour_of(group.series, palette, series_number)
        dash = "solid" if alone else _DASHES[again % len(_DASHES)]
        traces += _draw_group(group, group.name(alone=alone), own, dash, palette, unit)
    return traces


def _draw_group(
    group: RankGroup, name: str, colour: str, dash: str, palette: dict[str, str], unit: str
) -> list[Any]:
    import plotly.graph_objects as go

    pieces = band_of(group.curves)
    times = _join_rows([piece[0] for piece in pieces])
    lowest = _join_rows([piece[1] for piece in pieces])
    middle = _join_rows([piece[2] for piece in pieces])
    highest = _join_rows([piece[3] for piece in pieces])
    line = go.Scatter(
        x=times,
        y=middle,
        mode="lines",
        name=name,
        line={"color": colour, "width": 1.8, "shape": "hv", "dash": dash},
    )
    if len(group.ranks) == 1:
        return [line]
    line.update(
        name=f"{name}: median",
        customdata=list(zip(lowest, highest, strict=True)),
        hovertemplate=f"%{{y:.4g}} {unit}, from %{{customdata[0]:.4g}} to"
        f" %{{customdata[1]:.4g}}<extra>{name}</extra>",
    )
    edge = {"width": 0.5, "color": blend_colour(colour, palette["panel"], 0.5), "shape": "hv"}
    fill = {"fill": "tonexty", "fillcolor": blend_colour(colour, palette["panel"], 0.25)}
    band = []
    for number, piece in enumerate(pieces):  # apart: a fill runs on over holes
        shared = {"x": piece[0].tolist(), "mode": "lines", "hoverinfo": "skip", "line": edge}
        top = {"name": f"{name}: highest", "showlegend": False}
        bottom = {"name": f"{name}: lowest to highest", "showlegend": number == 0}
        band += [
            go.Scatter(y=piece[3].tolist(), **top, **shared),
            go.Scatter(y=piece[1].tolist(), **bottom, **fill, **shared),
        ]
    return [*band, line]


def _join_rows(rows: Sequence[Floats]) -> list[float | None]:
    """Return the values of all pieces, with a hole between two."""
    joined: list[float | None] = []
    for row in rows:
        joined += [*([None] if joined else []), *row.tolist()]
    return joined
