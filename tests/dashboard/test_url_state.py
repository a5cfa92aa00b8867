"""The address holds the view."""

from hypothesis import given
from hypothesis import strategies as st

from htk.dashboard.filters import changed, cleared
from htk.dashboard.url_state import FILTERS, UrlState

TEXT = st.text(min_size=1).filter(lambda t: t.isprintable() and t.strip() == t)
NAMES = st.sampled_from(["n", "by", "per"])


@given(
    st.sampled_from(["", "kernels", "kernel_top"]),
    st.dictionaries(st.sampled_from(FILTERS), TEXT),
    st.dictionaries(NAMES, TEXT),
    st.one_of(st.just(""), TEXT),
)
def test_an_address_is_read_back(
    page: str, filters: dict[str, str], options: dict[str, str], run: str
) -> None:
    view = UrlState(page, filters, options, run)
    assert UrlState.of("/" + page, view.search()) == view


def test_filters_go_along_and_options_stay() -> None:
    view = UrlState("kernels", {"ranks": "1"}, {"n": "3"}, "runs/a")
    assert view.link("idle") == "/idle?run=runs/a&ranks=1"
    assert view.link("timeline", **{"from": "1ms"}) == "/timeline?run=runs/a&ranks=1&from=1ms"
    assert view.without("ranks").search() == "?run=runs/a&o.n=3"
    assert view.with_option("n", "10", default=10).options == {}


def test_a_picker_of_times_that_rounds_is_no_choice() -> None:
    """A browser rounds the ends of a long recording to the picker's steps; a person moves them."""
    long_ms = 121_795.531
    view = UrlState("timeline")
    assert changed(view, "time", [0, 121_673.734], long_ms) == view
    narrowed = changed(view, "time", [1000.0, 50_000.0], long_ms)
    assert narrowed.filters == {"from": "1000ms", "to": "50000ms"}
    assert changed(narrowed, "time", [1000.1, 49_990.0], long_ms) == narrowed
    assert changed(view, "ranks", ["0", "2", "3"]).filters == {"ranks": "0,2..3"}
    assert cleared(narrowed, "time") == view
