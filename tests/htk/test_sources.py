"""What a user may name, and whose rank a name states."""

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from htk.errors import MalformedTrace, TraceError
from htk.opening import OpenOptions, open_trace
from htk.sources import content_identity, head, rank_from_name, resolve
from tests.kineto_file import of_rank, op, write

CONTENT = json.dumps({"traceEvents": [op("a", 1, 1)], **of_rank(0)}).encode()


def names(inputs: str | Path | list[str]) -> list[str]:
    return [source.file_name for source in resolve(inputs)]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-3.Jul_15.1074.pt.trace.json.gz", 3),
        ("rank0_trace.json", 0),
        ("run/rank_12/trace.json", 12),
        ("worker7_step_12.1694128201553.pt.trace.json.gz", 7),
        ("sampled_rank-1.json.gz", 1),
        ("graph_capture_rank_0.1773709679453551615.pt.trace.json.gz", 0),
        ("comm_lib_trace_rank_12", 12),
        ("nccl_trace_rank_0", 0),
        ("hccl_trace_rank_5", 5),
        ("iteration_10/rank4_trace.json", 4),
        ("host_12345.1694128201553.pt.trace.json", None),
        ("libkineto_activities_4711.json", None),
        ("dump_1493613951195738943_0.json", None),
        ("frank2.json", None),
        ("trace.json", None),
    ],
)
def test_rank_of_a_name(name: str, rank: int | None) -> None:
    assert rank_from_name(name) == rank


def test_a_folder_gives_its_files_in_order_and_leaves_out_what_is_never_a_trace(
    tmp_path: Path,
) -> None:
    (tmp_path / "b").mkdir()
    for name in (
        "b/2.json",
        "a.json.gz",
        "notes.md",
        ".hidden.json",
        "x.pt.trace.json.tmp",
        "dump",
    ):
        (tmp_path / name).write_bytes(CONTENT)
    assert names(tmp_path) == ["a.json.gz", "dump", "x.pt.trace.json.tmp", "2.json"]


def test_several_and_globs_each_file_once(tmp_path: Path) -> None:
    for name in ("r0.json", "r1.json"):
        (tmp_path / name).write_bytes(CONTENT)
    assert names([str(tmp_path / "r1.json"), str(tmp_path / "r*.json")]) == ["r1.json", "r0.json"]


@pytest.mark.parametrize("name", ["missing.json", "missing*.json"])
def test_what_is_not_there_is_said(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match="missing"):
        resolve(tmp_path / name)


def test_a_link_that_goes_round_is_not_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(CONTENT)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names(tmp_path) == ["t.json"]


def test_xla_profiles_are_named_as_not_supported(tmp_path: Path) -> None:
    folder = tmp_path / "plugins/profile/run"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(b"\x0a")
    with pytest.raises(TraceError, match="XLA profile"):
        resolve(tmp_path)


def test_the_head_is_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(CONTENT))
    start = head(resolve(path)[0])
    assert start.data == CONTENT and start.whole


def test_identity_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(CONTENT)
    before = resolve(path)[0]
    os.utime(path, ns=(1, 1))
    after = resolve(path)[0]
    assert before.identity != after.identity
    assert content_identity(before) == content_identity(after)


def test_zip_and_tar_members_are_sources(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("run/rank0.json", CONTENT)
        archive.writestr("run/rank1.json", CONTENT.replace(b'"rank": 0', b'"rank": 1'))
    with tarfile.open(tmp_path / "b.tar.gz", "w:gz") as archive:
        _add(archive, "run/rank2.json", CONTENT.replace(b'"rank": 0', b'"rank": 2'))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.ranks == [0, 1, 2]
    assert trace.tables["cpu_ops"].num_rows == 3


@pytest.mark.parametrize("name", ["../out.json", "/etc/out.json", "a/../../out.json", "C:\\x.json"])
def test_members_that_point_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), CONTENT)
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        _add(archive, name, CONTENT)
    for archive_name in ("a.zip", "b.tar"):
        with pytest.raises(TraceError, match="points outside"):
            resolve(tmp_path / archive_name)


def test_links_and_devices_within_a_tar_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        link = tarfile.TarInfo("evil.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        _add(archive, "good.json", CONTENT)
    assert names(tmp_path / "b.tar") == ["b.tar!good.json"]


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 no more")
    with pytest.raises(MalformedTrace, match="damaged archive"):
        resolve(tmp_path / "a.zip")


def test_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "htk", "doctor", "-"]
    done = subprocess.run(command, input=gzip.compress(CONTENT), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"cpu_ops" in done.stdout


def test_memory_urls() -> None:
    import fsspec

    with fsspec.open("memory://runs/rank0.json", "wb") as file:
        file.write(CONTENT)
    trace = open_trace("memory://runs", OpenOptions(cache=False))
    assert trace.tables["cpu_ops"].num_rows == 1


def test_an_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(TraceError, match="nonsense://"):
        resolve("nonsense://bucket/x.json")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_http(web: str, tmp_path: Path) -> None:
    write(tmp_path / "t.json", op("a", 1, 1), **of_rank(4))
    trace = open_trace(f"{web}/t.json", OpenOptions(cache=False))
    assert trace.ranks == [4]
    with pytest.raises(TraceError, match=r"none\.json"):
        resolve(f"{web}/none.json")


def test_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real server that speaks S3, over HTTP on this machine."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_ENDPOINT_URL_S3": url,
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
    client.create_bucket(Bucket="runs")
    for rank in (0, 1):
        body = gzip.compress(CONTENT.replace(b'"rank": 0', b'"rank": %d' % rank))
        client.put_object(Bucket="runs", Key=f"last/rank{rank}.json.gz", Body=body)
    try:
        trace = open_trace("s3://runs/last", OpenOptions(cache=True))
        assert trace.ranks == [0, 1]
        assert trace.tables["cpu_ops"].num_rows == 2
    finally:
        server.stop()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
