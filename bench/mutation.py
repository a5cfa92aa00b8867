"""How many small mistakes in the code that makes numbers do the tests notice?

    python bench/mutation.py                          40 mutants, other ones each time
    python bench/mutation.py --seed 7 --mutants 150 -o bench/quality/mutation.json
    python bench/mutation.py --path htk/quantities/derived/waits.py --mutants 20
    python bench/mutation.py --again FILE             the survivors of an earlier run; FILE takes
                                                      note of those that tests kill by now

Expressions are drawn from the packages below, each is changed once (a comparison, an operator, a
constant by one, a side, a minimum for a maximum, two arguments swapped) in a copy of the tree, and
the tests run: first the module's mirrored test file, or the one that tests/tested_elsewhere.toml
names, and those that import it, then those of the modules that use it and the others of its
package, nearest first, up to 10 files. A mutant is killed when a test fails that passes without it,
or when the tests end within the limit only without it. Mutants that nobody can tell from the
original are listed with their reasons in bench/mutation_equivalents.toml and are not counted.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from bench.forked_pytest import outcome
from bench.mutants import Mutant, mutants
from htk.analyses import ANALYSES
from htk.quantities.derived import registry

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "htk/base/columns",
    "htk/physics",
    "htk/quantities/derived",
    "htk/quantities/graph",
    "htk/quantities/measures",
    "htk/traces/compare",
    "htk/whatif",
    "parsers",
)
EQUIVALENTS = ROOT / "bench/mutation_equivalents.toml"
KEY = ("path", "code", "before", "after")  # names a mutant in files, as Mutant.key does
WIDER_FILES = 10  # tests of users of a module: the nearest so many
TOGETHER = 3  # test files of one process: all of them end within the limit


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: str  # killed, survived
    by: str = ""  # the test that failed, or "time"


def main() -> int:
    parser = argparse.ArgumentParser(description="How many small mistakes do the tests notice?")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, help="of the draw; another one each time unless given")
    parser.add_argument("--path", action="append", help="only modules whose path begins so")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a few test files")
    parser.add_argument("--again", type=Path, help="the survivors that a file of -o lists")
    parser.add_argument("-o", "--output", type=Path, help="where the figures are written as JSON")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    if options.again:
        drawn = again(json.loads(options.again.read_text())["survivors"])
    else:
        drawn = draw(options.mutants, seed, tuple(options.path or ("htk", "parsers")))
    print(f"seed {seed}, {len(drawn)} mutants", flush=True)
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder) / "htk", options.limit)
        tests = {
            mutant.path: nearest_tests(mutant.path) for mutant in drawn
        }  # of the tree as copied
        for number, mutant in enumerate(drawn, 1):
            verdict = tree.judge(mutant, *tests[mutant.path])
            verdicts.append(verdict)
            where = f"{mutant.path}:{mutant.line} {_short(mutant.before)} -> {mutant.after}"
            print(f"{number:4} {verdict.outcome:8} {where}  {verdict.by}", flush=True)
            if options.output:
                options.output.write_text(json.dumps(summary(verdicts, seed), indent=1) + "\n")
    if options.again:
        note_killed(options.again, verdicts)
    figures = summary(verdicts, seed)
    for test in sorted(tree.broken):
        print(f"fails without any mistake, and was left out: {test}")
    print(f"{figures['killed']} of {figures['mutants']} killed, seed {seed}")
    return 0


def draw(count: int, seed: int, prefixes: tuple[str, ...]) -> list[Mutant]:
    """Return mutants of the packages, every expression as likely as any other."""
    equivalent = {tuple(entry[k] for k in KEY) for entry in listed()}
    every = [
        mutant
        for path in modules()
        if path.startswith(prefixes)
        for mutant in mutants(path, (ROOT / path).read_bytes())
        if mutant.key not in equivalent
    ]
    return random.Random(seed).sample(every, min(count, len(every)))


def listed() -> list[dict[str, str]]:
    """Return the mutants that are judged equivalent, with the reasons."""
    return list(tomllib.loads(EQUIVALENTS.read_text(encoding="utf-8"))["equivalent"])


def again(survivors: list[dict[str, str]]) -> list[Mutant]:
    """Return the same mutants in the tree as it stands; what is gone from it is left out."""
    keys = {tuple(entry[k] for k in KEY) for entry in survivors}
    paths = sorted({entry["path"] for entry in survivors})
    every = (m for path in paths for m in mutants(path, (ROOT / path).read_bytes()))
    return list({mutant.key: mutant for mutant in every if mutant.key in keys}.values())


def note_killed(file: Path, verdicts: list[Verdict]) -> None:
    """Note in an earlier run's file which of its survivors tests kill by now."""
    figures = json.loads(file.read_text(encoding="utf-8"))
    figures["killed_since"] = [asdict(v.mutant) for v in verdicts if v.outcome == "killed"]
    file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def summary(verdicts: list[Verdict], seed: int) -> dict[str, object]:
    """Return the figures, by package too, and the survivors."""
    packages: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        packages[package_of(verdict.mutant.path)][verdict.outcome] += 1
    survivors = [asdict(v.mutant) for v in verdicts if v.outcome == "survived"]
    return {
        "seed": seed,
        "mutants": len(verdicts),
        "killed": sum(verdict.outcome == "killed" for verdict in verdicts),
        "packages": {name: dict(counts) for name, counts in sorted(packages.items())},
        "survivors": survivors,
    }


class Tree:
    """A copy of the checkout in which one module at a time holds a mistake."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root, self.limit = root, limit
        os.environ.setdefault("HTK_SHARED", str(ROOT.parent / "shared"))
        self._passing: dict[str, bool] = {}
        self.broken: set[str] = set()  # tests that fail in the copy as it is: they say nothing
        names = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
        ).stdout.split("\0")
        compiled = [str(path.relative_to(ROOT)) for path in (ROOT / "htk/base/native").glob("*.so")]
        for name in filter(None, (*names, *compiled)):
            target = root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target, follow_symlinks=False)

    def judge(self, mutant: Mutant, *selections: tuple[str, ...]) -> Verdict:
        """Run the tests nearest to the module, then those further off."""
        file = self.root / mutant.path
        original = file.read_bytes()
        few = [
            files[k : k + TOGETHER] for files in selections for k in range(0, len(files), TOGETHER)
        ]
        for selection in few:
            while True:
                self._write(file, mutant.apply(original))
                by = self._failure(selection)
                self._write(file, original)
                if by and self._passes(by, selection):
                    return Verdict(mutant, "killed", by)
                if not by or by in self.broken or ".py" not in by:
                    break
                self.broken.add(by)
        return Verdict(mutant, "survived")

    def _failure(self, selection: tuple[str, ...]) -> str:
        """Return the first test that fails; "" if none does, "time" if they do not end."""
        left_out = [f"--{'deselect' if '::' in t else 'ignore'}={t}" for t in sorted(self.broken)]
        done = outcome(self.root, (*selection, *left_out), self.limit)
        if done is None:
            return "time"
        return "" if done.code in (0, 5) else done.failed or "import"

    def _passes(self, test: str, selection: tuple[str, ...]) -> bool:
        """Whether what failed passes in the tree without a mistake; asked once."""
        asked = selection if test in ("time", "import") else (test,)
        if "::" not in test and asked != selection:  # it could not be imported: can it be without?
            asked = ("--collect-only", test)
        key = " ".join(asked)
        if key not in self._passing:
            done = outcome(self.root, asked, self.limit)
            self._passing[key] = done is not None and done.code == 0
        return self._passing[key]

    def _write(self, file: Path, source: bytes) -> None:
        file.write_bytes(source)
        # A change of the same length within a second would be taken for the compiled file's source.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


def modules() -> list[str]:
    """Return the modules of the packages that make numbers."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return sorted(str(path.relative_to(ROOT)) for path in files)


def package_of(path: str) -> str:
    """Return the name of the package that a module is drawn from."""
    return next(Path(p).name for p in PACKAGES if path.startswith(f"{p}/"))


def nearest_tests(path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the test files of a module, and those of the modules that use it and beside them."""
    near = tuple(dict.fromkeys([*_own_tests(path), *_naming_tests(path)]))
    folder = ROOT / "tests" / Path(path).parent
    beside = sorted(folder.glob("test_*.py")) or sorted(folder.parent.glob("test_*.py"))
    wider: dict[str, None] = {}
    seen, front = {path}, [path]
    while front and len(wider) < WIDER_FILES:
        front = sorted({user for module in front for user in users()[module]} - seen)
        seen |= set(front)
        wider |= dict.fromkeys(test for module in front for test in _own_tests(module))
        wider |= dict.fromkeys(test for module in front for test in _naming_tests(module))
        wider |= dict.fromkeys(str(file.relative_to(ROOT)) for file in beside)
    return near, tuple(test for test in wider if test not in near)[:WIDER_FILES]


@cache
def _own_tests(path: str) -> tuple[str, ...]:
    """The mirrored test file, or its package's, or the one that is named in its place."""
    folder = ROOT / "tests" / Path(path).parent
    mirrored = [folder / f"test_{Path(path).stem}.py", folder.parent / f"test_{folder.name}.py"]
    mirrored += [ROOT / test for module, test in _tested_elsewhere().items() if module == path]
    return tuple(str(file.relative_to(ROOT)) for file in mirrored if file.is_file())


@cache
def _naming_tests(path: str) -> tuple[str, ...]:
    """Test files that name the module or what it makes."""
    names = _spellings(path)
    files = [file for file, words in _words_of_tests().items() if names & words]
    return tuple(str(file.relative_to(ROOT)) for file in files)


@cache
def _tested_elsewhere() -> dict[str, str]:
    """The test file of each module that has none of its own name."""
    text = (ROOT / "tests/tested_elsewhere.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def users() -> dict[str, set[str]]:
    """Return, for each module, the modules that import it or read a table that it makes."""
    every = [p for top in ("htk", "parsers", "analyses") for p in (ROOT / top).rglob("*.py")]
    words = {str(p.relative_to(ROOT)): _words(p) for p in every if not _is_linked(p)}
    owners = {name: path for path in words for name in _spellings(path)}
    result: dict[str, set[str]] = defaultdict(set)
    for path, used in words.items():
        for name in used & owners.keys():
            result[owners[name]].add(path)
    return result


@cache
def _spellings(path: str) -> set[str]:
    """How others name a module: its import, the tables that it makes, its analysis."""
    parts = Path(path).with_suffix("").parts
    module = ".".join(parts if parts[0] == "htk" else ("htk", *parts)).removesuffix(".__init__")
    tables = {t for t in registry.NAMES if registry.find_maker(t).function.__module__ == module}
    return {module} | tables | ({parts[-1]} & ANALYSES.keys() if parts[0] == "analyses" else set())


@cache
def _words_of_tests() -> dict[Path, set[str]]:
    return {path: _words(path) for path in sorted((ROOT / "tests").rglob("test_*.py"))}


def _words(path: Path) -> set[str]:
    """Imported modules, identifiers and texts of a file."""
    return set(_words_in(ast.parse(path.read_bytes())))


def _words_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str() as module, names=names):
                yield module
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.Constant(value=str() as text):
                yield text.replace("-", "_")


def _is_linked(path: Path) -> bool:
    return any(folder.is_symlink() for folder in path.parents)


def _short(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
