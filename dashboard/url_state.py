"""What a page shows, read from its address: a copied link opens the same view."""

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qs, urlencode

from htk.base.core.analysis import Option
from htk.base.core.humanize import parse_duration, parse_int_ranges
from htk.base.errors import UsageError
from htk.base.mappings import Fields
from htk.traces.trace.selection import Selection

FILTERS = ("ranks", "cycles", "steps", "from", "to", "name", "annotation")
_OPTION = "o."  # options of a page, apart from the filters


@dataclass(frozen=True)
class UrlState:
    """A run, a page of it, the filters that hold on all pages, and the options of this one."""

    page: str = ""
    filters: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    run: str = ""

    @classmethod
    def from_address(cls, pathname: str | None, search: str | None) -> "UrlState":
        query = {k: v[0] for k, v in parse_qs((search or "").lstrip("?")).items()}
        filters = {k: query[k] for k in FILTERS if query.get(k)}
        options = {
            k.removeprefix(_OPTION): v for k, v in query.items() if k.startswith(_OPTION) and v
        }
        return cls((pathname or "/").strip("/"), filters, options, query.get("run", ""))

    def search(self) -> str:
        """Return the query of the address."""
        run = {"run": self.run} if self.run else {}
        options = {_OPTION + k: v for k, v in self.options.items()}
        pairs = {**run, **self.filters, **options}
        return "?" + urlencode(pairs, safe="/:,") if pairs else ""

    def link(self, page: str, **filters: str) -> str:
        """Return the address of another page under the same filters, and these."""
        kept = {k: v for k, v in {**self.filters, **filters}.items() if v}
        return "/" + page + replace(self, options={}, filters=kept).search()

    def without(self, name: str) -> "UrlState":
        return replace(self, filters={k: v for k, v in self.filters.items() if k != name})

    def with_filters(self, **filters: str) -> "UrlState":
        """Return the same page under other filters; an empty one is taken off."""
        kept = {**self.filters, **{k.rstrip("_"): v for k, v in filters.items()}}
        return replace(self, filters={k: kept[k] for k in FILTERS if kept.get(k)})

    def with_option(self, name: str, value: Any, default: Any = None) -> "UrlState":
        """Return one option of the page set, or left out where it is the default."""
        text = spell_option(value)
        options = {k: v for k, v in self.options.items() if k != name}
        if text and text != spell_option(default):
            options[name] = text
        return replace(self, options=options)

    def table_option(self, kind: str, table: str) -> str:
        """Return how a table is grouped, sorted or filtered; nothing where it is not."""
        return self.options.get(f"{kind}.{table}", "")

    @property
    def selection(self) -> Selection:
        """The part of the trace that the filters leave."""
        get = self.filters.get
        ranks = get("ranks")
        steps = get("steps")
        start = get("from")
        end = get("to")
        cycles = get("cycles")
        from_ns = parse_duration(start) if start else None
        to_ns = parse_duration(end) if end else None
        return Selection(
            frozenset(parse_int_ranges(ranks)) if ranks else None,
            frozenset(parse_int_ranges(steps)) if steps else None,
            from_ns,
            to_ns,
            get("annotation"),
            frozenset(parse_int_ranges(cycles)) if cycles else None,
        )

    def values(self, options: dict[str, Option]) -> Fields:
        """Return the options that the address gives, in their types."""
        return {
            name: _parse_option(option, self.options[name])
            for name, option in options.items()
            if name in self.options
        }


def spell_option(value: Any) -> str:
    """Return a value of an option, as its control shows it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, list):  # of a picker of several, whose values may hold commas
        return "\n".join(map(str, value))
    return "" if value is None else str(value)


def _parse_option(option: Option, text: str) -> Any:
    kinds = str(option.type)
    try:
        if option.type is bool:
            return text == "true"
        if option.type is int or "int" in kinds:
            return int(text)
        if option.type is float or "float" in kinds:
            return float(text)
    except ValueError:
        raise UsageError(f"{option.name}: {text!r} is not a number") from None
    return tuple(text.split(",")) if "tuple" in kinds else text
