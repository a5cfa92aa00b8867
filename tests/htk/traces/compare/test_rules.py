"""Rules of a gate: what may grow, by how much, and in which unit."""

import pytest

from htk.base.errors import UsageError
from htk.traces.compare.rules import Rule, parse_rule


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step_time>5%", ("time", "total", 5, "%", False, False)),
        ("exposed_comm > 2.5pp", ("time", "exposed communication", 2.5, "pp", False, False)),
        ("idle>3ms", ("time", "idle", 3e6, "ns", False, False)),
        ("least transfer>40us", ("comm", "transfer", 40e3, "ns", False, True)),
        ("kernel:flash_fwd>10%", ("kernel", "flash_fwd", 10, "%", False, False)),
        ("each kernel>10%", ("kernel", "*", 10, "%", True, False)),
        ("each module:layers.*.mlp>1s", ("module", "layers.*.mlp", 1e9, "ns", True, False)),
    ],
)
def test_rules_as_written(text: str, expected: tuple[object, ...]) -> None:
    kind, name, limit, unit, each, least = expected
    assert parse_rule(text) == Rule(text, kind, name, limit, unit, each, least)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["", "step_time", "step_time>5", "step_time<5%", "step_time>5pp", "kernel>5%", "gpu:x>5%"],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"rule|step"):
        parse_rule(text)


def test_parts_of_the_time_are_named_in_full_and_others_in_part() -> None:
    assert parse_rule("idle>1%").holds("idle") and not parse_rule("idle>1%").holds("idle: launch")
    flash = parse_rule("kernel:fl*fwd>1%")
    assert flash.holds("void flash_fwd<64>") and not flash.holds("flash_bwd")
    dots = parse_rule("kernel:a.b>1%")  # a name, not an expression
    assert dots.holds("xa.by") and not dots.holds("axb")
