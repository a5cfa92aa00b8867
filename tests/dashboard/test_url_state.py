"""The address holds the view."""

from hypothesis import given
from hypothesis import strategies as st

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
