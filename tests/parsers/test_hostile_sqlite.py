"""SQLite files that would run something: views, triggers, virtual tables, generated columns."""

import shutil
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest

from htk.base.errors import TraceError
from htk.traces.trace.opening import OpenOptions, open_trace
from tests.thinned import thinned

SAMPLES = Path(__file__).parents[2] / "sample_traces"
FILES = {
    "ascend_db/ascend_pytorch_profiler_3.db": "kernels",
    "nsight/two_ranks.sqlite": "kernels",
    "rocpd/two_steps.db": "kernels",
}
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x"
RENAME = "ALTER TABLE {t} RENAME TO old; CREATE "
ATTACKS = {
    "endless view": f"{RENAME} VIEW {{t}} AS {ENDLESS} AS start FROM n",
    "view of itself": f"{RENAME} VIEW {{t}} AS SELECT * FROM {{t}}",
    "view of a blob": f"{RENAME} VIEW {{t}} AS SELECT zeroblob(900000000) start",
    "full text": f"{RENAME} VIRTUAL TABLE {{t}} USING fts4(start, end)",
    "tree of boxes": f"{RENAME} VIRTUAL TABLE {{t}} USING rtree(id, a, b)",
    "trigger": "CREATE TRIGGER evil AFTER INSERT ON {t} BEGIN DELETE FROM {t}; END",
    "generated": "ALTER TABLE {t} ADD COLUMN evil AS (randomblob(900000000)) VIRTUAL",
    "index that lies": "CREATE INDEX evil ON {t}(rowid + 1)",
    "no rows": "DELETE FROM {t}",
    "no table": "DROP TABLE {t}",
    "forged schema": "PRAGMA writable_schema = 1; UPDATE sqlite_master SET sql = 'CREATE TABLE x(' "
    "WHERE name = '{t}'",
    "forged root": "PRAGMA writable_schema = 1; UPDATE sqlite_master SET rootpage = 1 "
    "WHERE name = '{t}'",
    "root beyond": "PRAGMA writable_schema = 1; UPDATE sqlite_master SET rootpage = 999999 "
    "WHERE name = '{t}'",
}


@pytest.mark.parametrize(("file", "attack"), thinned(product(FILES, ATTACKS), 3))
def test_tables_that_are_no_tables_are_answered_or_refused(
    file: str, attack: str, tmp_path: Path
) -> None:
    path = tmp_path / Path(file).name
    shutil.copy(SAMPLES / file, path)
    with closing(sqlite3.connect(path)) as database:
        named = "select name from sqlite_master where type = 'table' and name not like 'sqlite%'"
        tables = [name for (name,) in database.execute(named)]
    for table in tables:
        changed = tmp_path / f"{table}{path.suffix}"
        shutil.copy(path, changed)
        with closing(sqlite3.connect(changed)) as database:
            try:
                database.executescript(ATTACKS[attack].format(t=table))
            except sqlite3.Error:  # SQLite itself does not write this
                continue
        try:
            trace = open_trace(changed, OpenOptions(cache=False))
        except TraceError as error:
            assert "report it" not in str(error)
            continue
        assert not [why for _, why in trace.failed if "report it" in why]
        for name in ("kernels", "launches", "annotations"):
            assert trace.tables[name].num_rows < 10_000
