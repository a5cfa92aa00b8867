"""Stores that others may write to: what is not sealed with the store's key is not used."""

import random
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from htk.base.errors import HtkError, TraceError, UsageError
from htk.base.io.shared_store import MARK
from htk.base.io.store import META
from htk.base.io.store_key import SEAL_BYTES
from htk.base.io.table_file import give_tables, read_tables, write_tables
from htk.faces.cli.main import run_command_line
from htk.traces.trace.mapping import Shard, map_files
from htk.traces.trace.opening import open_trace
from tests.kineto_file import kernel, launch, of_rank, op, step, write

FILES = 4
ALTERED = 100


def mapped(folder: Path, kernel_us: int) -> Path:
    """Parse some ranks of one kernel each into a store."""
    (folder / "ranks").mkdir(parents=True)
    for rank in range(FILES):
        events = (
            step(0, 0, 500),
            op("aten::mm", 2, 5),
            launch(1, 3),
            kernel("gemm", 5, kernel_us, 1),
        )
        write(folder / "ranks" / f"rank{rank}.json", *events, **of_rank(rank, FILES))
    assert map_files(folder / "ranks", str(folder / "store"), Shard()).stored == FILES
    return folder / "store"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store on a machine whose cache holds nothing."""
    monkeypatch.setenv("HTK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    made = mapped(tmp_path / "own", 10)
    shutil.rmtree(tmp_path / "cache")
    return made


def entries(store: Path) -> list[Path]:
    return sorted(store.glob("*/*.zip"))


def kernel_us(store: Path) -> list[float]:
    """Return how long the kernels of a store last; nothing where it is not used."""
    try:
        kernels = open_trace(store).tables["kernels"]
    except HtkError:
        return []
    spans = zip(kernels["start_ns"].to_pylist(), kernels["end_ns"].to_pylist(), strict=True)
    return [(end - start) / 1000 for start, end in spans]


def rewritten(entry: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Write an entry anew, with right checksums and without a seal."""
    with zipfile.ZipFile(entry) as archive:
        members = {m.filename.partition("/")[2]: archive.read(m) for m in archive.infolist()}
    change(members)
    with zipfile.ZipFile(entry, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{entry.stem}/{name}", content)


def longer_kernels(entry: Path, folder: Path) -> None:
    """Let an entry say that kernels took longer, as who knows the format would."""

    def change(members: dict[str, bytes]) -> None:
        path = folder / "parsed.arrow"
        path.write_bytes(members["parsed.arrow"])
        stored = read_tables(path, entry.stem, path.name, thorough=True)
        tables = {name: stored[name] for name in stored.index}
        kernels = tables["kernels"]
        ends = pa.array([end + 10**9 for end in kernels["end_ns"].to_pylist()], pa.int64())
        position = kernels.column_names.index("end_ns")
        tables["kernels"] = kernels.set_column(position, kernels.schema.field("end_ns"), ends)
        path.unlink()  # it is mapped
        write_tables(path, tables, entry.stem, path.name)
        members["parsed.arrow"] = path.read_bytes()
        path.unlink()

    rewritten(entry, change)


def test_of_a_hundred_altered_entries_none_is_used(store: Path, tmp_path: Path) -> None:
    assert kernel_us(store) == [10.0] * FILES
    shutil.rmtree(tmp_path / "cache")
    originals = {entry: entry.read_bytes() for entry in entries(store)}
    chance, used = random.Random(45), 0
    for k in range(ALTERED // FILES):
        for entry, content in originals.items():
            entry.write_bytes(content)
            kind = k % 5
            if kind == 0:
                longer_kernels(entry, tmp_path)
            elif kind == 1:  # the right content under another's name
                entry.write_bytes(originals[next(e for e in originals if e != entry)])
            else:
                flipped = bytearray(content)
                of_seal = kind == 2
                first = len(content) - SEAL_BYTES if of_seal else 0
                position = chance.randrange(first, len(content))
                flipped[position] ^= 1 << chance.randrange(8)
                entry.write_bytes(flipped)
        used += len(kernel_us(store))
    assert used == 0
    for entry, content in originals.items():
        entry.write_bytes(content)
    assert kernel_us(store) == [10.0] * FILES


def test_nothing_is_carried_from_a_store_to_another(store: Path, tmp_path: Path) -> None:
    other = mapped(tmp_path / "other", 10)
    assert [e.name for e in entries(other)] == [e.name for e in entries(store)], "equal files"
    for theirs in entries(other):
        longer_kernels(theirs, tmp_path)
    assert kernel_us(other) == [], "not sealed"
    assert kernel_us(store) == [10.0] * FILES
    shutil.copytree(store, tmp_path / "moved")
    assert kernel_us(tmp_path / "moved") == [10.0] * FILES, "the key finds it where it lies"
    (other / MARK).write_bytes((store / MARK).read_bytes())
    shutil.rmtree(tmp_path / "cache")
    assert kernel_us(other) == [], "another key's, though it says it is this one's"


def test_what_is_used_unsigned_changes_no_signed_answer(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    originals = {entry: entry.read_bytes() for entry in entries(store)}
    for entry in originals:
        longer_kernels(entry, tmp_path)
    assert kernel_us(store) == []
    monkeypatch.setenv("HTK_STORE_KEY", "none")
    assert kernel_us(store) == [1_000_010.0] * FILES
    for entry, content in originals.items():
        entry.write_bytes(content)
    monkeypatch.delenv("HTK_STORE_KEY")
    assert kernel_us(store) == [10.0] * FILES


def test_the_key_goes_to_colleagues_in_a_file(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (key,) = (tmp_path / "settings" / "htk" / "store-keys").iterdir()
    assert key.stat().st_mode & 0o777 == 0o600 and key.parent.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "colleague"))
    assert run_command_line(["summary", str(store)]) == TraceError.exit_code
    error = capsys.readouterr().err
    assert "--store-key" in error and error.count("\n") == 1
    assert run_command_line(["summary", str(store), "--store-key", str(key)]) == 0
    assert run_command_line(["summary", str(store), "--store-key", str(tmp_path / "absent")]) == 2
    (tmp_path / "short").write_text("00ff")
    with monkeypatch.context() as patch:
        patch.setenv("HTK_STORE_KEY", str(tmp_path / "short"))
        with pytest.raises(UsageError, match="64 hexadecimal digits"):
            open_trace(store)
    with pytest.raises(TraceError, match="the key of this store is not at hand"):
        map_files(tmp_path / "own" / "ranks", str(store), Shard())
    monkeypatch.setenv("HTK_STORE_KEY", "none")
    with pytest.raises(UsageError, match="written with a key"):
        map_files(tmp_path / "own" / "ranks", str(tmp_path / "new"), Shard())


def test_verify_tells_of_altered_entries(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["cache", "verify", str(store)]) == 0
    assert f"{FILES} entries are as sealed, 0 are not" in capsys.readouterr().out
    longer_kernels(entries(store)[0], tmp_path)
    assert run_command_line(["cache", "verify", str(store)]) == 4
    out = capsys.readouterr().out
    assert f"{FILES - 1} entries are as sealed, 1 are not" in out and "its seal is not" in out
    assert run_command_line(["verify", str(store), "--format", "json"]) != 0
    assert "its seal is not of this store" in capsys.readouterr().out


def overlapping(entry: Path, _: Path) -> None:
    """Let many names of an entry tell of the same bytes."""
    with zipfile.ZipFile(entry) as archive:
        (parsed,) = [m for m in archive.infolist() if m.filename.endswith("parsed.arrow")]
    content = entry.read_bytes()[:-SEAL_BYTES]
    end = content.rfind(b"PK\x05\x06")
    count, size, start = struct.unpack_from("<HII", content, end + 10)
    record = content[start:end][content[start:end].find(b"PK\x01\x02") :]
    name = parsed.filename.encode()
    at = record.find(name) - 46
    of_parsed = record[at : at + 46 + len(name)]
    copies = b"".join(
        of_parsed[:46] + name.replace(b"parsed.arrow", b"%06d.arrow" % k) for k in range(500)
    )
    many = content[end : end + 8] + struct.pack("<HHII", count + 500, count + 500, size, start)
    many = many[:12] + struct.pack("<II", size + len(copies), start) + b"\0\0"
    entry.write_bytes(content[:end] + copies + many)


def compressed(entry: Path, folder: Path) -> None:
    """Let a table of an entry be compressed from a thousand times its size."""

    def change(members: dict[str, bytes]) -> None:
        path = folder / "parsed.arrow"
        path.write_bytes(members["parsed.arrow"])
        stored = read_tables(path, entry.stem, path.name, thorough=True)
        tables = {name: stored[name] for name in stored.index}
        path.unlink()  # it is mapped
        tables["kernels"] = pa.table({"start_ns": pa.array([7] * 4_000_000, pa.int64())})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("htk.base.io.table_file.SELDOM_READ", ("kernels",))
            write_tables(path, tables, entry.stem, path.name)
        members["parsed.arrow"] = path.read_bytes()
        path.unlink()

    rewritten(entry, change)


@pytest.mark.parametrize(
    ("attack", "why"), [(overlapping, "its members overlap"), (compressed, "is compressed from")]
)
def test_what_grows_when_unpacked_is_refused_before(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    attack: Callable[[Path, Path], None],
    why: str,
) -> None:
    attack(entries(store)[0], tmp_path)
    monkeypatch.setenv("HTK_STORE_KEY", "none")
    trace = open_trace(store)
    assert len(trace.ranks) == FILES - 1
    assert why in trace.failed[0][1]


def test_the_cache_of_a_store_is_its_own(store: Path, tmp_path: Path) -> None:
    open_trace(store)
    names = {folder.name for folder in (tmp_path / "cache").iterdir() if (folder / META).is_file()}
    assert len(names) >= FILES and not names & {entry.stem for entry in entries(store)}
    assert run_command_line(["cache", "verify"]) == 0
    give = tmp_path / "cache" / sorted(names)[0] / "parsed.arrow"
    give_tables(give, "0" * 40)
    assert run_command_line(["cache", "verify"]) == 4
