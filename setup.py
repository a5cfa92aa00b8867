"""The compiled parts (ingest, order, replay, overlaps, the allocator), and where the packages lie.

All are optional: without a compiler their twins in Python run. HTK_PURE=1 leaves them out,
as a build on Windows does; the wheel then fits every platform.
"""

import hashlib
import os
import sys
from pathlib import Path

from setuptools import Extension, find_packages, setup

ROOT = Path(__file__).parent
LINKED = ("parsers", "analyses", "dashboard")  # folders beside htk/, linked into it


def extension(name: str, sources: list[str]) -> Extension:
    headers = sorted(str(path.relative_to(ROOT)) for path in (ROOT / sources[0]).parent.glob("*.h"))
    return Extension(
        name,
        sources,
        depends=headers,
        language="c++",
        extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden"],
        define_macros=[
            ("Py_LIMITED_API", "0x030B0000"),
            ("HTK_SOURCES", f'"{digest([*sources, *headers])}"'),
        ],
        py_limited_api=True,
        optional=True,
    )


def digest(files: list[str]) -> str:
    """Return the hash of the sources, by which htk.base.core.engine knows an outdated build."""
    texts = [(ROOT / name).read_bytes() for name in sorted(files)]
    return hashlib.sha256(b"".join(texts)).hexdigest()


def extensions() -> list[Extension]:
    if sys.platform == "win32" or os.environ.get("HTK_PURE"):
        return []
    units = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("native/kineto/*.cpp"))
    if not units:  # a copy of the Python files alone
        return []
    return [
        extension("htk.base.native._kineto", units),
        extension("htk.base.native._allocator", ["native/allocator.cpp"]),
        extension("htk.base.native._order", ["native/order.cpp"]),
        extension("htk.base.native._overlaps", ["native/overlaps.cpp"]),
        extension("htk.base.native._replay", ["native/replay.cpp"]),
    ]


def unlinked() -> dict[str, str]:
    """Return where packages lie that a checkout without symbolic links does not show in htk/."""
    folders = {f"htk.{name}": name for name in LINKED if not (ROOT / "htk" / name).is_dir()}
    missing = [name for name in folders.values() if not (ROOT / name / "__init__.py").is_file()]
    if missing:
        name = missing[0]
        sys.exit(f"error: neither htk/{name} nor {name} is a folder: check out all of htk")
    return folders


def packages(folders: dict[str, str]) -> list[str]:
    found = find_packages(str(ROOT), include=["htk*"])
    for package, folder in folders.items():
        inner = find_packages(str(ROOT / folder))
        found += [package, *(f"{package}.{name}" for name in inner)]
    return found


FOLDERS = unlinked()
setup(
    packages=packages(FOLDERS),
    package_dir=FOLDERS,
    ext_modules=extensions(),
    options={
        "bdist_wheel": {"py_limited_api": "cp311"},
        "build_ext": {"parallel": os.cpu_count() or 1},
    },
)
