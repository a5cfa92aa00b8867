"""What a user may name, and whose rank a name states."""

import gzip
import importlib
import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from htk.base.core.stated_counts import StatedCount
from htk.base.errors import MissingPackage, TraceError
from htk.base.io.sources import content_identity, rank_from_name, read_head, resolve_inputs
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.kineto_file import of_rank, op, write

CONTENT = json.dumps({"traceEvents": [op("a", 1, 1)], **of_rank(0)}).encode()


def names(inputs: str | Path | list[str]) -> list[str]:
    return [source.file_name for source in resolve_inputs(inputs)]


def trouble(path: Path) -> str:
    """What is said of a file that cannot be read."""
    with pytest.raises(TraceError) as caught:
        open_trace(path, OpenOptions(cache=False))
    assert "\n" not in str(caught.value)
    return str(caught.value)


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
        ("out/dp0_pp0_tp0_dcp0_ep0_rank5.1694128201553.pt.trace.json.gz", 5),
        ("vllm-rank-2.1694128201553.pt.trace.json.gz", 2),
        ("1741234567.89-TP-3.trace.json.gz", 3),
        ("1741234567.89-TP-3-EP-3-DECODE.trace.json.gz", 3),
        ("1741234567.89-TP-1-PP-2.trace.json.gz", None),
        ("rank=6/part.json", 6),
        ("tp_rank_3.json", None),
        ("node0_local-rank-3.json", None),
        ("rank0_and_rank1.json", None),
        ("test_of_rank_3/trace.json", None),
        ("worker-3_4711.1694128201553.pt.trace.json", None),
        ("worker-3.cluster.local_4711.1694128201553.pt.trace.json", None),
        ("job-worker-3_4711.1694128201553.pt.trace.json", None),
        ("worker-3/host_4711.1694128201553.pt.trace.json", None),
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
        resolve_inputs(tmp_path / name)


def test_a_link_that_goes_round_is_not_followed_for_ever(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(CONTENT)
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert names(tmp_path) == ["t.json"]


def test_a_torchtitan_folder_is_two_ranks_of_two_cycles(tmp_path: Path) -> None:
    for cycle, at in ((10, 1), (20, 1000)):
        for rank in (0, 1):
            folder = tmp_path / "profile_trace" / f"iteration_{cycle}"
            folder.mkdir(parents=True, exist_ok=True)
            write(folder / f"rank{rank}_trace.json", op(f"at{cycle}", at, 1))
    ops = open_trace(tmp_path, OpenOptions(cache=False)).tables["cpu_ops"]
    found = zip(*(ops[c].to_pylist() for c in ("rank", "cycle", "name")), strict=True)
    assert sorted(found) == [(0, 0, "at10"), (0, 1, "at20"), (1, 0, "at10"), (1, 1, "at20")]


def test_a_tensorboard_folder(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    (run / "events.out.tfevents.1694128201.host.4711.0").write_bytes(b"\x18\0\0\0")
    (run / "host_4711.1694128201545.pt.trace.json.gz").write_bytes(gzip.compress(CONTENT))
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.ranks == [0]
    assert [Path(name).name[:6] for name in trace.unread] == ["events"]


def test_a_file_named_twice_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.json").write_bytes(CONTENT)
    (tmp_path / "latest.json").symlink_to("t.json")
    monkeypatch.chdir(tmp_path)
    every = ["t.json", f"{tmp_path}/t.json", f"file://{tmp_path}/t.json", "latest.json"]
    assert names(every) == ["t.json"]


def test_a_pipe_of_the_shell(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(gzip.compress(CONTENT)))
    writer.start()
    (source,) = resolve_inputs(pipe)
    writer.join()
    assert read_head(source).data == CONTENT
    assert read_head(source).data == CONTENT  # and again


def test_an_archive_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        _add(archive, "rank0.json", CONTENT)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(buffer.getvalue())))
    (member,) = resolve_inputs("-")
    assert (member.name, read_head(member).data) == ("-!rank0.json", CONTENT)


def test_a_device_is_no_file() -> None:
    with pytest.raises(TraceError, match="neither a file nor a folder"):
        resolve_inputs("/dev/null")


def test_a_file_that_vanishes_is_an_error_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(CONTENT)
    (source,) = resolve_inputs(path)
    path.unlink()
    with pytest.raises(TraceError, match=r"t\.json: No such file"):
        source.open()


def test_the_head_is_decompressed(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(CONTENT))
    start = read_head(resolve_inputs(path)[0])
    assert start.data == CONTENT and start.is_complete


def test_identity_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(CONTENT)
    before = resolve_inputs(path)[0]
    os.utime(path, ns=(1, 1))
    after = resolve_inputs(path)[0]
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
        assert "points outside" in trouble(tmp_path / archive_name)


def test_links_and_devices_within_archives_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            entry = tarfile.TarInfo(f"evil{kind!r}.json")
            entry.type, entry.linkname = kind, "/etc/passwd"
            archive.addfile(entry)
        _add(archive, "good.json", CONTENT)
    assert names(tmp_path / "b.tar") == ["b.tar!good.json"]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("evil.json")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("good.json", CONTENT)
    assert names(tmp_path / "a.zip") == ["a.zip!good.json"]


@pytest.mark.parametrize("kind", ["", ":gz"])
def test_members_are_read_whole_from_where_they_lie(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"b.tar{kind.replace(':', '.')}"
    contents = {f"{n}.json": bytes([65 + n]) * (1000 * n + 7) for n in range(5)}
    with tarfile.open(path, f"w{kind}") as archive:  # type: ignore[call-overload]
        for name, content in contents.items():
            _add(archive, name, content)
    found = resolve_inputs(path)
    files = [source.open() for source in found]  # all at once
    assert [file.read(-1) for file in files] == list(contents.values())
    assert found[3].identity != found[4].identity


def test_what_cannot_be_read_spoils_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 no more")
    (tmp_path / "b.tar.gz").write_bytes(gzip.compress(b"no tar"))
    (tmp_path / "t.json").write_bytes(CONTENT)
    trace = open_trace(tmp_path, OpenOptions(cache=False))
    assert trace.ranks == [0]
    assert [Path(name).name for name, _ in trace.failed] == ["a.zip", "b.tar.gz"]
    assert all("damaged archive" in why for _, why in trace.failed)


def test_members_before_the_cut_of_an_archive_are_kept(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for rank in range(3):
            _add(archive, f"rank{rank}.json", CONTENT)
    (tmp_path / "b.tar").write_bytes(buffer.getvalue()[: 1024 + 512 + 100])
    *found, cut = resolve_inputs(tmp_path / "b.tar")  # a header and a content take 512 bytes each
    assert [read_head(source).data for source in found] == [CONTENT, CONTENT[:100]]
    with pytest.raises(TraceError, match="damaged archive"):
        cut.open()


def test_a_decompression_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big.json", bytes(80 << 20))
    assert "decompression bomb" in trouble(tmp_path / "a.zip")
    entry = tarfile.TarInfo("big.json")
    entry.size = 1 << 50
    (tmp_path / "b.tar").write_bytes(entry.tobuf() + bytes(1024))
    assert "decompression bomb" in trouble(tmp_path / "b.tar")


def test_an_archive_of_other_things(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("notes.md", "none")
    assert "no file in it that may be a trace" in trouble(tmp_path / "a.zip")


def test_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "htk", "doctor", "-"]
    done = subprocess.run(command, input=gzip.compress(CONTENT), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"cpu_ops" in done.stdout


def test_standard_input_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("htk.base.io.sources.STDIN_LIMIT", 10)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CONTENT)))
    with pytest.raises(TraceError, match="more than 10 bytes"):
        resolve_inputs("-")


def test_memory_urls() -> None:
    import fsspec

    for name in ("rank0.json", "notes.md"):
        with fsspec.open(f"memory://runs/{name}", "wb") as file:
            file.write(CONTENT)
    assert names("memory://runs/*.json") == ["rank0.json"]
    trace = open_trace("memory://runs", OpenOptions(cache=False))
    assert trace.tables["cpu_ops"].num_rows == 1


def test_an_unknown_scheme_says_what_to_install() -> None:
    with pytest.raises(TraceError, match="nonsense://"):
        resolve_inputs("nonsense://bucket/x.json")


@pytest.mark.parametrize(
    ("url", "driver", "extra"),
    [("s3://b/x.json", "s3fs", "s3"), ("gs://b/x.json", "gcsfs", "gcs")],
)
def test_a_driver_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, url: str, driver: str, extra: str
) -> None:
    registry = importlib.import_module("fsspec.registry")
    monkeypatch.setitem(sys.modules, driver, None)
    monkeypatch.delitem(registry._registry, url[:2], raising=False)
    with pytest.raises(MissingPackage, match=rf"pip install 'htk-trace\[{extra}\]'"):
        resolve_inputs(url)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(tmp_path))  # type: ignore[arg-type]

        def send_head(self) -> Any:
            if "absurd" in self.path:
                self.send_response(200)
                self.send_header("Content-Length", str(10**15))
                self.end_headers()
                return None
            if "away" in self.path:
                self.send_response(302)
                self.send_header("Location", self.path.partition("?to=")[2])
                self.end_headers()
                return None
            if "forbidden" not in self.path:
                return super().send_head()
            self.send_error(403)
            return None

        def end_headers(self) -> None:
            self.send_header("ETag", '"the same for all"')
            super().end_headers()

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_http(web: str, tmp_path: Path) -> None:
    write(tmp_path / "t.json", op("a", 1, 1), **of_rank(4))
    trace = open_trace(f"{web}/t.json", OpenOptions(cache=False))
    assert trace.ranks == [4]
    assert names(f"{web}/") == ["t.json"]
    with pytest.raises(TraceError, match=r"none\.json: no such file"):
        resolve_inputs(f"{web}/none.json")
    with pytest.raises(TraceError, match="Connect"):
        resolve_inputs("http://127.0.0.1:9/t.json")


@pytest.mark.parametrize("scheme", ["file://", "ftp://127.0.0.1", "memory://", "data:text/plain,"])
def test_no_redirect_leaves_the_web(web: str, tmp_path: Path, scheme: str) -> None:
    target = write(tmp_path / "t.json", op("a", 1, 1), **of_rank(4))
    with pytest.raises(TraceError) as refused:
        open_trace(f"{web}/away.json?to={scheme}{target}", OpenOptions(cache=False))
    assert "\n" not in str(refused.value)
    there = open_trace(f"{web}/away.json?to={web}/t.json", OpenOptions(cache=False))
    assert there.ranks == [4], "within the web they are followed"


def test_what_a_query_asks_for_is_part_of_a_file_and_a_signature_is_not(
    web: str, tmp_path: Path
) -> None:
    (tmp_path / "t.json").write_bytes(CONTENT)
    asked = ("", "?v=1", "?v=2", "?v=1&X-Amz-Signature=one", "?sig=two&v=1")
    plain, first, second, signed, shared = (
        resolve_inputs(f"{web}/t.json{query}")[0].identity for query in asked
    )
    assert len({plain, first, second}) == 3
    assert first == signed == shared and "two" not in str(shared)


def test_a_size_that_no_file_has_is_refused_before_limits_follow_from_it(web: str) -> None:
    (source,) = resolve_inputs(f"{web}/absurd.json")
    with pytest.raises(TraceError, match="1,000,000,000,000,000 bytes are declared"):
        source.open()


def test_a_signed_address_opens_and_its_signature_is_not_shown(web: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(CONTENT)
    (source,) = resolve_inputs(f"{web}/t.json?X-Amz-Signature=secret")
    assert source.name == f"{web}/t.json"
    assert read_head(source).data == CONTENT
    for wrong in ("none.json", "forbidden.json"):
        with pytest.raises(TraceError) as caught:
            resolve_inputs(f"{web}/{wrong}?X-Amz-Signature=secret")
        assert "secret" not in str(caught.value)


def test_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real server that speaks S3, over HTTP on this machine."""
    s3fs = pytest.importorskip("s3fs")
    s3fs.S3FileSystem.clear_instance_cache()  # of a server that is gone
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
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
        assert names("s3://runs/last/rank?.json.gz") == ["rank0.json.gz", "rank1.json.gz"]
        before = resolve_inputs("s3://runs/last/rank1.json.gz")[0].identity
        client.put_object(Bucket="runs", Key="last/rank1.json.gz", Body=b"other")
        assert before and before != resolve_inputs("s3://runs/last/rank1.json.gz")[0].identity
    finally:
        server.stop()
        s3fs.S3FileSystem.clear_instance_cache()  # whoever asks next would wait for it


def test_members_that_are_no_files_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for k in range(4):
            link = tarfile.TarInfo(f"{k}.json")
            link.type = tarfile.SYMTYPE
            archive.addfile(link)
    monkeypatch.setattr("htk.base.io.archives.MEMBERS", StatedCount(0, 3))
    (only,) = resolve_inputs(tmp_path / "b.tar")
    with pytest.raises(TraceError, match="more than 3 members"):
        only.open()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def test_an_empty_path_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank0.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert len(resolve_inputs(".")) == 1
    for inputs in ("", [""], [".", ""]):
        with pytest.raises(TraceError, match="a path is empty"):
            resolve_inputs(inputs)


def test_the_root_of_a_site_is_what_is_linked_there_without_pages_that_act(
    web: str, tmp_path: Path
) -> None:
    links = "".join(f'<a href="/{name}">' for name in ("stacks", "profile", "wait_counters"))
    (tmp_path / "index.html").write_text(links)
    assert names(web) == names(f"{web}/") == ["stacks", "wait_counters"]
