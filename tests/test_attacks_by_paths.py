"""Paths that lead out of what a face may read, or are no files at all: a table against every face.

Each attack makes something in a folder and names it. No face with roots may show what lies outside
of them; no face ends otherwise than with an answer or a refusal.
"""

import io
import json
import os
import socket
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import htk
from htk.answers.ask import ask_trace
from htk.base.errors import HtkError
from htk.dashboard.runs import Runs
from htk.faces.cli.main import run_command_line
from htk.faces.mcp.traces import Traces
from htk.traces.trace.opening import OpenOptions
from htk.traces.trace.selection import Selection
from tests.kineto_file import kernel, of_rank, write

SECRET = "kernel_of_somebody_else"
OPTIONS = OpenOptions(cache=False)


def link_to_file(root: Path, outside: Path) -> str:
    (root / "x.json").symlink_to(outside / "rank0.json")
    return "x.json"


def link_in_folder(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    (root / "run" / "rank1.json").symlink_to(outside / "rank0.json")
    return "run"


def chain_of_links(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    (root / "a").symlink_to(outside)
    (root / "run" / "rank1.json").symlink_to(root / "a" / "rank0.json")
    return "run"


def link_to_folder(root: Path, outside: Path) -> str:
    (root / "run").symlink_to(outside)
    return "run"


def folder_below_a_link(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    (root / "run" / "deep").symlink_to(outside)
    return "run/deep"


def pattern_over_links(root: Path, outside: Path) -> str:
    link_in_folder(root, outside)
    return "run/*.json"


def link_to_archive(root: Path, outside: Path) -> str:
    with zipfile.ZipFile(outside / "a.zip", "w") as archive:
        archive.write(outside / "rank0.json", "rank0.json")
    (root / "a.zip").symlink_to(outside / "a.zip")
    return "a.zip"


def archive_of_a_link(root: Path, outside: Path) -> str:
    with tarfile.open(root / "a.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo("rank1.json")
        member.type, member.linkname = tarfile.SYMTYPE, str(outside / "rank0.json")
        archive.addfile(member)
        hard = tarfile.TarInfo("rank2.json")
        hard.type, hard.linkname = tarfile.LNKTYPE, str(outside / "rank0.json")
        archive.addfile(hard)
    return "a.tar.gz"


def member_that_leads_out(root: Path, outside: Path) -> str:
    text = (outside / "rank0.json").read_bytes()
    with tarfile.open(root / "a.tar", "w") as archive:
        for name in ("../x/rank1.json", "/rank2.json"):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return "a.tar"


def pipe_in_folder(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    os.mkfifo(root / "run" / "rank1.json")
    return "run"


def socket_in_folder(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    here = os.getcwd()
    os.chdir(root / "run")  # addresses of sockets are short
    socket.socket(socket.AF_UNIX).bind("rank1.json")
    os.chdir(here)
    return "run"


def link_to_device(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    (root / "run" / "rank1.json").symlink_to("/dev/zero")
    return "run"


def link_to_proc(root: Path, outside: Path) -> str:
    (root / "run").mkdir()
    (root / "run" / "rank1.json").symlink_to("/proc/self/environ")
    return "run"


def link_to_itself(root: Path, outside: Path) -> str:
    (root / "run.json").symlink_to("run.json")
    return "run.json"


NAMED: dict[str, Callable[[Path, Path], str]] = {
    "dots": lambda root, outside: "../outside",
    "dots within": lambda root, outside: "../root/../outside/rank0.json",
    "absolute": lambda root, outside: str(outside / "rank0.json"),
    "address of a file": lambda root, outside: f"file://{outside}/rank0.json",
    "address": lambda root, outside: "http://127.0.0.1:9/rank0.json",
    "address with words": lambda root, outside: (
        "s3://htk-no-such-bucket/x?endpoint=http://127.0.0.1"
    ),
    "device": lambda root, outside: "/dev/zero",
    "proc": lambda root, outside: "/proc/self/mem",
    "home": lambda root, outside: "~/../../etc/passwd",
    "nobody": lambda root, outside: "~nobody-here/x",
    "NUL": lambda root, outside: "a\0b",
    "surrogate": lambda root, outside: "\udcff\udcfe",
    "overlong": lambda root, outside: "a" * 100_000,
    "deep": lambda root, outside: "a/" * 3000,
    "empty": lambda root, outside: "",
    "dash": lambda root, outside: "./-",
}
MADE = [
    link_to_file, link_in_folder, chain_of_links, link_to_folder, folder_below_a_link,
    pattern_over_links, link_to_archive, archive_of_a_link, member_that_leads_out, pipe_in_folder,
    socket_in_folder, link_to_device, link_to_proc, link_to_itself,
]  # fmt: skip
ATTACKS = {attack.__name__: attack for attack in MADE} | NAMED
# Files and links of archives belong to whoever gives the archive: no face follows them.
NEVER = {"archive_of_a_link", "member_that_leads_out"}


def by_agents(root: Path, name: str) -> str:
    trace = Traces([root], OPTIONS).select(name)
    return str(ask_trace(trace, "kernel_top").to_pylist())


def by_dashboard(root: Path, name: str) -> str:
    runs = Runs([root], options=OPTIONS)
    keys = [f"{root.name}/{name}", name]
    with suppress(HtkError):
        keys.append(runs.key_of(name))
    shown = ""
    for key in keys:
        try:
            job = runs.begin(key)
        except HtkError as error:
            shown += str(error)
            continue
        assert job.ended.wait(60)
        assert "reading failed" not in job.error, job.error
        if runs.trace(key) is not None:
            shown += str(runs.ask(key, Selection(), "kernel_top").to_pylist())
    return shown


def by_command(root: Path, name: str) -> str:
    here = os.getcwd()
    os.chdir(root)
    try:
        code = run_command_line(
            ["kernel-top", name, "--no-cache", "--format", "json", "-o", "../answer.json"]
        )
    finally:
        os.chdir(here)
    assert code in (0, 2, 3), code
    return json.dumps((root.parent / "answer.json").read_text()) if code == 0 else ""


def by_notebook(root: Path, name: str) -> str:
    here = os.getcwd()
    os.chdir(root)
    try:
        return str(htk.open(name, cache=False).kernel_top().to_pylist())
    finally:
        os.chdir(here)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder, name in ((root, "gemm"), (outside, SECRET)):
        folder.mkdir()
        write(folder / "rank0.json", kernel(name, 1, 2), **of_rank(0))
    return root, outside


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("face", [by_agents, by_dashboard])
def test_no_face_with_roots_reads_outside_of_them(
    face: Callable[[Path, str], str], attack: str, folders: tuple[Path, Path]
) -> None:
    name = ATTACKS[attack](*folders)
    try:
        shown = face(folders[0], name)
    except HtkError as error:
        assert "internal error" not in str(error)
        shown = str(error)
    assert SECRET not in shown


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("face", [by_command, by_notebook])
def test_no_path_ends_a_face_otherwise_than_in_words(
    face: Callable[[Path, str], str], attack: str, folders: tuple[Path, Path]
) -> None:
    if attack == "device" or (attack, face) == ("NUL", by_command):
        pytest.skip("who names a device reads it; no argument of a command holds NUL")
    name = ATTACKS[attack](*folders)
    try:
        shown = face(folders[0], name)
    except HtkError as error:
        assert "internal error" not in str(error)
        shown = str(error)
    assert attack not in NEVER or SECRET not in shown


def test_roots_still_open(folders: tuple[Path, Path]) -> None:
    assert "gemm" in by_agents(folders[0], "rank0.json")
    assert "gemm" in by_dashboard(folders[0], "rank0.json")
    assert SECRET in by_command(folders[0], "../outside"), "its user may read what the user may"
