"""Small mistakes for bench/mutation.py: one change of one expression, as text."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

SWAPPED_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SWAPPED_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
SWAPPED_NAMES = {
    left: right
    for pair in (
        ("min", "max"),
        ("minimum", "maximum"),
        ("argmin", "argmax"),
        ("any", "all"),
        ("floor", "ceil"),
        ("left", "right"),  # the sides of a search
        ("ascending", "descending"),
    )
    for left, right in (pair, pair[::-1])
}

SYMMETRIC = ("minimum", "maximum", "hypot", "array_equal")  # swapped arguments: no mistake


@dataclass(frozen=True)
class Mutant:
    path: str  # of the module, as tests and people name it
    line: int
    code: str  # the line as it stands
    before: str
    after: str
    start: int  # bytes of the expression in the file
    end: int

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in the list of equivalents, wherever its line has moved."""
        return self.path, self.code, self.before, self.after


def mutants(path: str, source: bytes) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    lines = source.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))
    rows = []
    for node, after in _changes(ast.parse(source)):
        start = offsets[node.lineno - 1] + node.col_offset
        end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        code = lines[node.lineno - 1].decode().strip()
        before = source[start:end].decode()
        rows.append(Mutant(path, node.lineno, code, before, after, start, end))
    return sorted(rows, key=lambda mutant: (mutant.start, mutant.end, mutant.after))


def _changes(node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Each expression that a mistake fits, and its text with the mistake."""
    if isinstance(node, ast.expr):
        for after in _mistakes(node):
            yield node, after
    for child in _code_of(node):
        yield from _changes(child)


def _code_of(node: ast.AST) -> Iterator[ast.AST]:
    """Children that compute: no types, decorators, checks, texts or errors."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.keyword) and node.arg in ("strict", "repr"):
        return  # a check, as assertions are; a text
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _mistakes(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left, [operator], right):
            yield ast.unparse(ast.Compare(left, [SWAPPED_COMPARISONS[type(operator)]()], right))
        case ast.BinOp(ast.Constant(str() | bytes()), _, _) | ast.BinOp(
            _, _, ast.Constant(str() | bytes())
        ):  # of texts: a mistake that no call survives
            return
        case ast.BinOp(left, operator, right) if type(operator) in SWAPPED_OPERATORS:
            other = SWAPPED_OPERATORS[type(operator)]()
            yield f"({ast.unparse(ast.BinOp(left, other, right))})"
        case ast.BoolOp(operator, values):
            other_bool = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other_bool, values))})"
        case ast.UnaryOp(ast.Not() | ast.Invert() | ast.USub(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(bool() as value):
            yield str(not value)
        case ast.Constant(int() as value):
            yield str(value + 1)
        case ast.Constant(str() as value) if value in SWAPPED_NAMES:
            yield repr(SWAPPED_NAMES[value])
        case ast.Attribute(value, name) if name in SWAPPED_NAMES:
            yield ast.unparse(ast.Attribute(value, SWAPPED_NAMES[name]))
        case ast.Call(ast.Name(name), arguments, keywords) if name in ("min", "max", "any", "all"):
            yield ast.unparse(ast.Call(ast.Name(SWAPPED_NAMES[name]), arguments, keywords))
        case ast.Call(ast.Name(name) | ast.Attribute(_, name), [_, _]) if name in SYMMETRIC:
            return
        case ast.Call(function, [first, second, *rest], keywords) if _alike(first, second):
            yield ast.unparse(ast.Call(function, [second, first, *rest], keywords))
        case ast.IfExp(test, yes, no):
            yield f"({ast.unparse(ast.IfExp(test, no, yes))})"


def _alike(first: ast.expr, second: ast.expr) -> bool:
    """Whether a tired engineer could swap two arguments, and it would matter."""
    if ast.dump(first) == ast.dump(second):
        return False
    if isinstance(first, ast.Name) and isinstance(second, ast.Name):
        return True
    subscripts = isinstance(first, ast.Subscript) and isinstance(second, ast.Subscript)
    attributes = isinstance(first, ast.Attribute) and isinstance(second, ast.Attribute)
    return subscripts or attributes
