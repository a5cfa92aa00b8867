"""Stacks as others write them, as the vocabulary holds them."""

import json

from htk.parsers.common.stack_texts import join_stacks, join_tracebacks, read_graph_stack

_OUTER = '  File "/a/run.py", line 3, in main\n    step(x)\n'
_INNER = '  File "/a/net.py", line 8, in <lambda>\n    y = f(x)\n'


def test_a_traceback_is_turned_round() -> None:
    assert join_tracebacks([_OUTER + _INNER]) == "/a/net.py(8): <lambda>;/a/run.py(3): main"


def test_several_stand_below_each_other_once() -> None:
    stacks = [_OUTER, _INNER, _OUTER, 5, "no frame"]
    expected = "/a/run.py(3): main\n/a/net.py(8): <lambda>"
    assert join_tracebacks(stacks) == join_stacks(json.dumps(stacks)) == expected
    assert join_stacks(_OUTER) == "/a/run.py(3): main"
    assert join_stacks("[" * 9000) is None and join_tracebacks([]) is None


def test_a_stack_of_a_graphs_node() -> None:
    assert (
        read_graph_stack("~/net.py:8:f\nC:\\run.py:3:main") == "~/net.py(8): f;C:\\run.py(3): main"
    )
    assert read_graph_stack("<no Python frames outside PyTorch>") is None
