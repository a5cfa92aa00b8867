"""Build into dist/: the source, a wheel for each platform, the pure wheel for the rest.

Zig's C++ compiler builds for platforms that this machine is not; the stable ABI of Python 3.11 is
declared by the headers of the Python at hand. `make wheels` runs it, and `.ci/try-wheels` after it.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from distutils.core import run_setup
from pathlib import Path

import setuptools  # noqa: F401, it brings distutils
from abi3info import DATAS, FUNCTIONS

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
ZIG = ("-m", "ziglang")
# What a wheel is tagged with, and what Zig calls the platform.
PLATFORMS = {
    "manylinux_2_28_x86_64": "x86_64-linux-gnu.2.28",
    "manylinux_2_28_aarch64": "aarch64-linux-gnu.2.28",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_12_0_x86_64": "x86_64-macos.12.0",
    "macosx_12_0_arm64": "aarch64-macos.12.0",
    "win_amd64": "x86_64-windows-gnu",
}
# Of what a Python for Windows says of itself, as much as the stable ABI's declarations ask for.
WINDOWS_PYCONFIG = """\
#pragma once
#define MS_WINDOWS
#define MS_WIN32
#define MS_WIN64
#define HAVE_DECLSPEC_DLL
#define Py_ENABLE_SHARED
#define Py_NO_LINK_LIB
#define NT_THREADS
#define WITH_THREAD 1
#define HAVE_STDINT_H 1
#define HAVE_INTTYPES_H 1
#define HAVE_STDDEF_H 1
#define HAVE_WCHAR_H 1
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF_PID_T 8
#define ALIGNOF_SIZE_T 8
"""


def main() -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        pure = build_pure(work)
        for platform in sys.argv[1:] or PLATFORMS:
            compiled = compile_parts(PLATFORMS[platform], work)
            print(pack(pure, compiled, platform, work).name, flush=True)
        shutil.copy(pure, DIST)
        print(pure.name)
    inspect(sorted(DIST.iterdir()))


def build_pure(work: Path) -> Path:
    """Return the wheel without compiled parts, built from the source that stands in dist/ then."""
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)  # else it is packed
    run("-m", "build", "--sdist", "--outdir", DIST, ROOT)
    source = next(DIST.glob("*.tar.gz"))
    print(source.name, flush=True)
    shutil.unpack_archive(source, work, filter="data")
    (unpacked,) = (path for path in work.iterdir() if path.is_dir())
    run("-m", "build", "--wheel", "--outdir", work, unpacked, HTK_PURE="1")
    (wheel,) = work.glob("*-none-any.whl")
    return wheel


def compile_parts(target: str, work: Path) -> list[Path]:
    """Return the extensions that setup.py names, as libraries for a platform of Zig's."""
    folder = work / target
    folder.mkdir()
    headers = folder / "include"
    shutil.copytree(sysconfig.get_path("include"), headers)
    platform: list[str | Path] = ["-I", headers, "-target", target, "-shared", "-s"]
    suffix = ".abi3.so"
    if "windows" in target:
        suffix = ".pyd"
        (headers / "pyconfig.h").write_text(WINDOWS_PYCONFIG)
        platform.append(import_library(folder))
    elif "macos" in target:
        platform += ["-undefined", "dynamic_lookup"]
    else:
        platform.append("-fPIC")
    extensions = run_setup(str(ROOT / "setup.py"), stop_after="init").ext_modules
    libraries = []
    for extension in extensions:
        library = folder / (extension.name.rpartition(".")[2] + suffix)
        macros = [f"-D{name}={value}" for name, value in extension.define_macros]
        inputs = (*extension.extra_compile_args, *macros, *extension.sources)
        run(*ZIG, "c++", *inputs, *platform, "-o", library)
        libraries.append(library)
    return libraries


def import_library(folder: Path) -> Path:
    """Return the library that says, to the linker, what python3.dll has."""
    names = sorted(symbol.name for symbol in (*FUNCTIONS, *DATAS))
    definition = folder / "python3.def"
    definition.write_text("\n".join(["LIBRARY python3.dll", "EXPORTS", *names, ""]))
    library = folder / "python3.lib"
    run(*ZIG, "dlltool", "-m", "i386:x86-64", "-d", definition, "-l", library)
    return library


def pack(pure: Path, libraries: list[Path], platform: str, work: Path) -> Path:
    """Return the wheel of a platform in dist/: the pure one and its compiled parts."""
    folder = work / platform
    run("-m", "wheel", "unpack", "--dest", folder, pure)
    (unpacked,) = folder.iterdir()
    for library in libraries:
        shutil.copy(library, unpacked / "htk" / "base" / "native")
    (about,) = unpacked.glob("*.dist-info/WHEEL")
    text = about.read_text().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
    about.write_text(text.replace("py3-none-any", f"cp311-abi3-{platform}"))
    run("-m", "wheel", "pack", "--dest-dir", DIST, unpacked)
    (wheel,) = DIST.glob(f"*-{platform}.whl")
    return wheel


def inspect(files: list[Path]) -> None:
    """Hold names, texts and symbols to what the index, the stable ABI and old systems allow."""
    run("-m", "twine", "check", "--strict", *files)
    wheels = [path for path in files if "-abi3-" in path.name]
    run("-m", "abi3audit", "--strict", *wheels)
    for wheel in wheels:
        if "manylinux" in wheel.name:
            shown = run("-m", "auditwheel", "show", wheel)
            consistent = re.search(r'following\s+platform\s+tag:\s+"(\w+)"', shown)
            print(f"auditwheel of {wheel.name}: {consistent[1] if consistent else shown}")


def run(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
