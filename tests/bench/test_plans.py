"""The scorecard of plans on rows whose truth the test sets."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from bench.plans.page import checked, page
from bench.plans.rows import Measured, load
from bench.plans.score import (
    Miss,
    factors,
    misses,
    rankings,
    source_scores,
    trait_variances,
)
from htk.physics.hardware import gpu
from htk.physics.presets import decoder
from htk.planning.plan.job import PlannedJob
from htk.planning.plan.step import plan

ROOT = Path(__file__).parents[2]
FACTS = ROOT / "bench/scorecard/facts"
MEASURED = ROOT.parent / "shared/truth/whatif"
HEADER = (
    "system,n_gpus,precision,gbs,mbs,seq_len,tp,pp,cp,vp,ep,tokens_per_s_per_gpu,"
    "model_tflops_per_gpu,model,container,task,source,fsdp,ga,a,b\n"
)
ROWS = (
    "DGX-H100,64,FP8,256,1,8192,4,8,1,5,n/a,1600,731,LLAMA3_70B,26.04,finetune,x,0,,,\n"
    "DGX-GB200,256,MXFP8,4096,1,4096,1,4,1,4,64,4912,1276,DeepSeekV3,26.08,finetune,x,,,,\n"
    "DGX-H100,8,,128,1,8192,1,1,1,n/a,1,14079,725,LLAMA3_8B,25.09,finetune,x,8,16,,\n"
    "DGX-GB300,8,FP8,32,1,4096,1,2,1,20,n/a,7481,2086,LLAMA3_70B,26.06,lora,x,,,,\n"
    "DGX-B200,8,FP8-CS (FP8-MX),128,2,8192,1,1,1,n/a,1,30624 (29521),1,LLAMA3_8B,25.11,x,x,0,8,,\n"
)


def test_rows_of_a_published_table_are_said_or_the_reason_is(tmp_path: Path) -> None:
    (tmp_path / "nvidia_megatron_bridge_nemo.csv").write_text(HEADER + ROWS)
    rows = load(tmp_path)
    assert [row.job is not None for row in rows] == [True, True, False, True, True]
    assert "precision" in rows[2].reason
    first, second, lora, both = (row.job for row in rows if row.job)
    assert (first.replicas, first.accumulation, first.virtual_stages) == (2, 128, 5)
    assert rows[0].step_ns == pytest.approx(1e9 * 256 * 8192 / (64 * 1600))
    assert (second.expert_parallel, second.link_domain) == (64, 72)
    assert lora.lora_rank is not None
    assert both.precision == "fp8-cs"  # with the figure before the brackets
    assert rows[4].step_ns == pytest.approx(1e9 * 128 * 8192 / (8 * 30624))


def test_variances_are_found_again() -> None:
    """Errors drawn with a base of 0.1, 0.3 more where experts are, nothing for pipelines."""
    draw, found = random.Random(1), []
    for k in range(6000):
        traits = ("experts",) * (k % 2) + ("pipelines",) * (k % 3 == 0)
        sigma = math.hypot(0.1, 0.3 if k % 2 else 0.0)
        row = Measured(f"source {k % 4}", "", None)
        found.append(Miss(row, draw.gauss(0, sigma), 0.0, traits))
    learned = trait_variances(found)
    assert learned.base**0.5 == pytest.approx(0.1, abs=0.015)
    assert learned.by_trait["experts"] ** 0.5 == pytest.approx(0.3, abs=0.02)
    assert learned.by_trait["pipelines"] ** 0.5 < 0.05
    assert factors(found)[90] == pytest.approx(1.645, rel=0.05)
    assert factors(found)[50] == pytest.approx(0.6745, rel=0.05)


def test_a_page_counts_what_it_states() -> None:
    rows, model = [], decoder("llama3-8b")
    for k in range(40):
        job = PlannedJob(model, gpu("h100"), nodes=1 + k % 4, seq=2048)
        true = plan(job).step_ns * (1.1 if k % 2 else 1 / 1.1)
        rows.append(Measured(f"source {k % 4}", "a job", job, true))
    rows.append(Measured("source 0", "another", None, reason="no sizes"))
    found = misses(rows)
    scores = source_scores(rows, found)
    assert [(s.rows, s.said) for s in scores] == [(11, 10), (10, 10), (10, 10), (10, 10)]
    assert all(s.median_pct == pytest.approx(10, abs=1) for s in scores)
    text = page(rows, found, scores)
    assert "| source 0 | 11 | 10 |" in text and "no sizes" in text
    table = checked(found, trait_variances(found), factors(found))
    assert 'trait."hopper GPUs"' in table and "rows = 40" in table


def test_plans_miss_the_project_s_own_rows_by_less_than_a_usual_utilisation_does() -> None:
    scores = {s.name: s for s in source_scores(load(FACTS), misses(load(FACTS)))}
    assert {"LLM-Foundry", "Aleph Alpha"} <= set(scores)
    for score in scores.values():
        assert score.median_pct < score.naive_pct


@pytest.mark.skipif(not MEASURED.exists(), reason="no folder of measured steps")
def test_the_page_and_the_table_are_what_the_command_writes() -> None:
    rows = load(MEASURED)
    missed = misses(rows)
    text = page(rows, missed, source_scores(rows, missed))
    assert (ROOT / "docs/plan_scorecard.md").read_text(encoding="utf-8") == text
    table = checked(missed, trait_variances(missed), factors(missed))
    assert (ROOT / "htk/planning/plan/checked.toml").read_text(encoding="utf-8") == table
    assert len(missed) > 500


def test_what_no_plan_can_tell_apart_is_one_layout() -> None:
    """Two versions of software for one job: their median; the slower layout is planned fastest."""
    job = PlannedJob(decoder("llama3-8b"), gpu("h100"), gpus_per_node=8)
    rows = [
        Miss(Measured("a", "", described, measured), math.log(planned / measured), 0.0, ())
        for described, measured, planned in (
            (job, 10.0, 9.0), (job, 14.0, 9.0), (replace(job, strategy="zero1"), 11.0, 8.0),
            (replace(job, checkpointing="full"), 13.0, 12.0),
            (replace(job, checkpointing="selective"), 20.0, 12.0),
        )
    ]  # fmt: skip
    (ranking,) = rankings(rows)
    assert ranking.layouts == 4
    assert ranking.regret_pct == pytest.approx(0.0)  # 11, against a median of 12
