"""Numbers of a trace's text against exact decimals."""

import math
from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from htk.parsers.kineto.scan import Mistyped, convert_number, lacks_quote, scale_decimal

INTEGERS = st.integers(0, 10**24).map(str)
FRACTIONS = st.sampled_from(["", ".0", ".5", ".25", ".5000000", ".4999999", ".50000001", ".125"])
EXPONENTS = st.sampled_from(
    ["", "e0", "E3", "e-3", "e+2", "e-7", "e18", "e-30", "e+0000000000003", "E-00000000000000002"]
)
LITERALS = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-"]), INTEGERS | st.integers(0, 3000).map(str), FRACTIONS, EXPONENTS,
)  # fmt: skip


@given(LITERALS, st.sampled_from([0, 3]))
def test_as_exact_decimals_rounded_half_to_even(literal: str, places: int) -> None:
    with localcontext() as context:
        context.prec = 100
        value = Decimal(literal).scaleb(places)
        rounded = int(value.to_integral_value(ROUND_HALF_EVEN))
        lossless = value == value.to_integral_value()
    found = scale_decimal(literal, places)
    assert found == rounded if abs(value) < 10**19 else found is None
    exact = scale_decimal(literal, places, exact=True)
    assert exact == (rounded if lossless and abs(value) < 10**19 else None)


@pytest.mark.parametrize(
    ("literal", "value"),
    [("1e-9999999999", 0), ("1e9999999999", None), ("0e9999999999", 0), ("-0", 0),
     ("2.5", 2), ("3.5", 4), ("-2.5", -2), ("0.5", 0), ("0.51", 1), ("0.05", 0), ("1.5.1", None),
     ("", None), ("1e", None), ("0x1f", None), ("9999999999999999999", 9999999999999999999)],
)  # fmt: skip
def test_by_hand(literal: str, value: int | None) -> None:
    assert scale_decimal(literal, 0) == value


def test_kinds_of_numbers() -> None:
    assert convert_number("nanos", "1.2345", False) == 1234
    assert convert_number("ints", "12", False) == convert_number("ints", "12", True) == 12
    assert convert_number("ints", "0x1F", True) == 31
    assert convert_number("floats", "1.5e3", False) == 1500.0
    assert convert_number("floats", "N/A", True) is None
    infinite = convert_number("floats", "Infinity", False)
    assert infinite is not None and math.isinf(infinite)
    for kind, literal, quoted in (
        ("ints", "1.5", False), ("ints", "0x1F", False), ("ints", "9223372036854775808", False),
        ("floats", "N/A", False), ("floats", "x", True), ("nanos", "1e17", False),
        ("floats", "ınf", True), ("floats", "ınfınıty", True),
    ):  # fmt: skip
        with pytest.raises(Mistyped):
            convert_number(kind, literal, quoted)  # type: ignore[arg-type]
    assert convert_number("ints", "-9223372036854775808", False) == -(2**63)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [(b'gemm", "x', True), (b'"gemm"', False), (b"[1, 2]", False), (b'{"a": 1}', False),
     (b"12", False), (b"", False)],
)  # fmt: skip
def test_a_value_that_lost_its_first_quote(text: bytes, lacks: bool) -> None:
    assert lacks_quote(text) is lacks
