"""How a job is laid out over its ranks."""

import json

from htk.base.core.parser import Head
from htk.parsers import job_layout
from tests.parsers.operation_files import SAMPLES, parsed


def test_a_layout_as_yaml_or_json() -> None:
    expected = {"dp_size": 3, "pp_size": 2, "tp_size": 8, "world_size": 48}
    yaml = (SAMPLES / "job_layout/layout.yaml").read_bytes()
    for data in (yaml, json.dumps(expected | {"trial_name": "sample"}).encode()):
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert row["job"] == "sample"
        assert {name: row[name] for name in expected} == expected
    assert not job_layout.sniff(Head("x", b"dp_size: many\npp_size: 4\n", True))
    assert not job_layout.sniff(Head("x", yaml, False)), "longer than a head: no layout"


def test_a_layout_holds_the_facts_of_the_list_and_no_others() -> None:
    facts = {"slurm_job_id": "4711", "git_commit": "a" * 40}
    claimed = facts | {"password": "x", "slurm_partition": "p" * 500, "slurm_nodes": 3}
    sizes = {"dp_size": 3, "pp_size": 2}
    as_json = json.dumps(sizes | {"htk_environment": claimed}).encode()
    as_yaml = f"dp_size: 3\npp_size: 2\nhtk_environment: {json.dumps(claimed)}\n".encode()
    for data in (as_json, as_yaml):
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert json.loads(row["environment"]) == facts
        assert (row["dp_size"], row["pp_size"]) == (3, 2)
    for text in ("htk_environment: {", "htk_environment: 7", "htk_environment: {}"):
        data = f"dp_size: 3\npp_size: 2\n{text}\n".encode()
        (row,) = parsed(job_layout, data).tables["job_layouts"].to_pylist()
        assert row["environment"] is None
