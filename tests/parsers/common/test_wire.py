"""Protocol buffers, field by field, within bounds."""

import struct

import pytest

from htk.parsers.common.wire import Cut, read_fields, read_signed, read_varint
from sample_traces.xplane_export import message


def test_the_wire_format_is_read_within_its_bounds() -> None:
    with pytest.raises(Cut):
        read_varint(b"\xff" * 11, 0, 11)
    with pytest.raises(Cut):
        list(read_fields(message(2, "abc")[:-1], 0, 4))
    with pytest.raises(Cut):
        list(read_fields(b"\x0b", 0, 1))  # a group, which nobody writes
    assert read_signed((1 << 64) - 5) == -5
    (double,) = read_fields(b"\x11" + struct.pack("<d", 1.5), 0, 9)
    assert (double.number, double.end - double.start) == (2, 8)
