"""Communication hidden, or not."""

from htk.whatif.edits import overlap
from tests.htk.whatif.small_step_model import Act, comm, period, small_scene

# a 100, then b 100 which waits for g; g 150 from the start: 150 + 100
STEP = (
    Act("a", 100),
    Act("b", 100, waits=("g",)),
    comm("g", 150, "all_gather"),
)


def test_today() -> None:
    assert period(overlap.apply(small_scene(STEP), "today")) == 250


def test_perfect_leaves_compute() -> None:
    assert period(overlap.apply(small_scene(STEP), "perfect")) == 200


def test_perfect_still_needs_its_link() -> None:
    long = (*STEP[:2], comm("g", 250, "all_gather"))
    assert period(small_scene(long)) == 350
    assert period(overlap.apply(small_scene(long), "perfect")) == 250


def test_perfect_waits_for_whom_is_late() -> None:
    fast = [Act("a", 10), comm("g", 50, "all_reduce", waits=("a",), joined="g")]
    slow = [
        Act("a", 100, rank=1),
        comm("g", 50, "all_reduce", rank=1, waits=("a",), joined="g"),
    ]
    ends = [Act("b", 10, waits=("g",)), Act("b", 10, rank=1, waits=("g",))]
    scene = small_scene([*fast, *slow, *ends])
    assert period(scene) == 160
    assert period(overlap.apply(scene, "perfect")) == 110


def test_serial_adds_what_was_hidden() -> None:
    assert period(overlap.apply(small_scene(STEP), "serial")) == 350  # 100 of g beside a


def test_realistic_slows_compute_by_the_usual_factor() -> None:
    # 150 of 200 have communication beside: 1 + 0.189 · 0.75; a had g beside it before already
    found = period(overlap.apply(small_scene(STEP), "realistic"))
    assert 200 < found <= round(200 * (1 + 0.189 * 0.75))
