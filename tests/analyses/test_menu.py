"""What is written from the folder of analyses is what lies there."""

import ast
import inspect
from pathlib import Path

import htk
from htk.analyses import ANALYSES, find_analysis, menu

STUB = Path(htk.__file__).parent / "faces/notebook" / "questions.pyi"


def test_the_types_of_a_session_are_those_of_the_analyses() -> None:
    assert STUB.read_text() == menu.build_session_stub(), (
        "python -m htk.analyses.menu writes it anew"
    )


def test_each_question_is_a_typed_method() -> None:
    (questions,) = (n for n in ast.parse(STUB.read_text()).body if isinstance(n, ast.ClassDef))
    methods = {n.name: n for n in questions.body if isinstance(n, ast.FunctionDef)}
    assert set(methods) == set(ANALYSES)
    for name, method in methods.items():
        given = {
            a.arg: ast.literal_eval(d)
            for a, d in zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
            if d is not None
        }
        signature = inspect.signature(find_analysis(name).function)
        assert given == {o: signature.parameters[o].default for o in find_analysis(name).options}
        assert all(a.annotation is not None for a in method.args.kwonlyargs)
