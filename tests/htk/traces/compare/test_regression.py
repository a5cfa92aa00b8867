"""The gate: quiet between runs of the same, loud on what was planted, honest about few steps."""

import itertools
import json
import random
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from htk.base.errors import UsageError
from htk.quantities.measures.chance import compute_student_tail, find_student_quantile
from htk.quantities.measures.chance import correct_by_holm as shared_chance
from htk.recording.simulate.config import Config
from htk.recording.simulate.job import simulate_job
from htk.traces.compare.baseline import RecordedBaseline, Series, build_cost_baseline, to_json
from htk.traces.compare.regression import judge_rules
from htk.traces.compare.rules import parse_rule
from htk.traces.trace.opening import open_trace
from tests.htk.traces.compare.equal_runs import RULES, run
from tests.in_process import htk

TIGHT = [parse_rule(t) for t in ("step_time>1%", "exposed_comm>0.5pp", "kernel:flash_fwd>1%")]


@pytest.fixture(scope="module")
def runs() -> list[RecordedBaseline]:
    return [run(number) for number in range(12)]


@pytest.mark.parametrize(
    ("count", "most"), [(12, 60), pytest.param(34, 200, marks=pytest.mark.nightly)]
)
def test_it_is_quiet_between_pairs_of_the_same(
    runs: list[RecordedBaseline], count: int, most: int
) -> None:
    every = [*runs, *(run(number) for number in range(len(runs), count))]
    pairs = random.Random(7).sample(list(itertools.combinations(every, 2)), most)
    alarms = [any(j.verdict == "failed" for j in judge_rules(*pair, RULES)) for pair in pairs]
    assert sum(alarms) < 0.02 * len(pairs)
    tight = [judge_rules(*pair, TIGHT) for pair in pairs]
    assert sum(any(j.verdict == "failed" for j in each) for each in tight) < 0.02 * len(pairs)
    bare = sum(any((j.change or 0) > j.rule.limit for j in each) for each in tight)
    assert bare > 0.05 * len(pairs), "bare limits alarm often here: that is what noise is for"


def test_it_trips_on_a_kernel_that_takes_a_tenth_longer(runs: list[RecordedBaseline]) -> None:
    others = []
    for number in range(5):
        slower = run(100 + number, flash_fwd=1.1)
        kernel, other = judge_rules(
            runs[number],
            slower,
            [parse_rule("kernel:flash_fwd>5%"), parse_rule("kernel:flash_bwd>5%")],
        )
        assert kernel.verdict == "failed" and 5 < (kernel.change or 0) < 15
        others.append(other.verdict)
    # Two ranks tell little: where their speeds drift apart, 5 % cannot be told.
    assert "failed" not in others and others.count("passed") >= 4


def flat(steps: list[float], ranks: list[float], name: str = "total") -> RecordedBaseline:
    series = Series(1.0, np.array(steps), np.array(ranks), np.array(steps))
    return RecordedBaseline(len(steps), tuple(range(len(ranks))), {"time": {name: series}})


def test_a_change_within_the_noise_of_steps_passes_or_is_left_open() -> None:
    base = flat([100, 120, 80, 110, 90], [100])
    new = flat([112, 132, 92, 122, 102], [112])
    (asked,) = judge_rules(base, new, [parse_rule("step_time>10%")], run_noise_pct=0)
    # a variance of 250 over 5 steps, twice: one sigma is 10; t of 8 degrees at 0.005 is 3.355
    assert asked.change == pytest.approx(12)
    assert asked.noise == pytest.approx(33.55, rel=1e-3)
    assert asked.verdict == "too noisy" and "record more steps" in asked.reason
    (far,) = judge_rules(
        base, flat([150, 170, 130, 160, 140], [150]), [parse_rule("step_time>10%")]
    )
    assert far.verdict == "failed"
    (better,) = judge_rules(base, flat([50, 60, 40, 55, 45], [50]), [parse_rule("step_time>10%")])
    assert better.verdict == "passed"


def test_one_rank_that_is_slower_is_no_noise() -> None:
    """Of four ranks one takes 40 % longer in every step: no more steps would tell it better."""
    base = flat([100.0] * 5, [100, 100, 100, 100])
    uniform = flat([110.0] * 5, [110, 110, 110, 110])
    uneven = flat([110.0] * 5, [140, 100, 100, 100])
    verdicts = [
        judge_rules(base, new, [parse_rule("step_time>5%")])[0].verdict for new in (uniform, uneven)
    ]
    assert verdicts == ["failed", "failed"]


def test_small_times_are_let_pass_and_new_ones_are_told() -> None:
    base, new = flat([100.0] * 5, [100], "idle"), flat([200.0] * 5, [200], "idle")
    assert judge_rules(base, new, [parse_rule("idle>5%")])[0].verdict == "failed"
    assert judge_rules(base, new, [parse_rule("idle>5%")], min_abs_ns=101)[0].verdict == "passed"
    nothing = RecordedBaseline(5, (0,), {"time": {}})
    (appeared,) = judge_rules(nothing, new, [parse_rule("idle>5%")])
    assert appeared.verdict == "failed" and "not in the base" in appeared.reason


def test_points_are_of_the_step() -> None:
    def with_comm(exposed: float) -> RecordedBaseline:
        parts = {"total": 1000.0, "exposed communication": exposed}
        series = {
            k: Series(1.0, np.full(5, v), np.full(1, v), np.full(5, v)) for k, v in parts.items()
        }
        return RecordedBaseline(5, (0,), {"time": series})

    (asked,) = judge_rules(with_comm(100), with_comm(130), [parse_rule("exposed_comm>2pp")])
    assert asked.change == pytest.approx(3) and asked.verdict == "failed"
    (time,) = judge_rules(with_comm(100), with_comm(130), [parse_rule("exposed_comm>50ns")])
    assert time.change == pytest.approx(30) and time.verdict == "passed"


def test_too_few_steps_are_said() -> None:
    (asked,) = judge_rules(flat([1, 1], [1]), flat([9, 9, 9], [9]), [parse_rule("step_time>5%")])
    assert asked.verdict == "too few steps"
    assert asked.reason == "complete steps: 2 in the base; record 3 at least, better 10"


@pytest.mark.parametrize(
    "text", ["step_time", "step_time>5", "speed>5%", "kernel:>5%", "step_time>5pp", "time:x>1%"]
)
def test_what_is_no_rule_is_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"step_time"):
        parse_rule(text)


def test_a_rule_that_means_nothing_is_said(runs: list[RecordedBaseline]) -> None:
    with pytest.raises(UsageError, match="neither recording has such a kernel; in the base are"):
        judge_rules(runs[0], runs[1], [parse_rule("kernel:nonesuch>5%")])
    assert judge_rules(runs[0], runs[1], [parse_rule("kernel:flash*fwd>5%")])[0].verdict == "passed"


def test_students_t_against_tables() -> None:
    chance = np.array([0.005, 0.005, 0.0005, 0.00001, 0.005])
    free = np.array([1.0, 8.0, 20.0, 2.0, 1e7])
    limits = [63.657, 3.3554, 3.8495, 223.603, NormalDist().inv_cdf(0.995)]
    assert find_student_quantile(chance, free) == pytest.approx(limits, rel=1e-4)
    assert compute_student_tail(np.array(limits), free) == pytest.approx(chance, rel=1e-3)
    both = compute_student_tail(np.array([0.0, -1.0, 1.0]), np.array([3.0, 5.0, 5.0]))
    assert both[0] == 0.5 and both[1] + both[2] == pytest.approx(1) and both[2] < 0.25


def test_holm_by_hand() -> None:
    """0.01 of four, 0.03 of three, …: 0.010 > 0.03/3 stops it there, whatever comes after."""
    falls, level = shared_chance(np.array([0.011, 0.002, 0.5, 0.012]), 0.03)
    assert falls.tolist() == [False, True, False, False]
    assert level == pytest.approx([0.01, 0.0075, 0.01, 0.01])
    falls, level = shared_chance(np.array([0.004, 0.002, 0.5, 0.012]), 0.03)
    assert falls.tolist() == [True, True, False, True]
    assert level == pytest.approx([0.01, 0.0075, 0.03, 0.015])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    config = Config(model="gpt3-126m", layers=1, gpus_per_node=2, steps=5)
    simulate_job(config, folder / "base")
    simulate_job(Config(**{**config.__dict__, "plants": ("straggler",)}), folder / "slow")
    return folder


def test_the_command_exits_4_and_writes_what_it_saw(recorded: Path, tmp_path: Path) -> None:
    base, slow, perf = (str(p) for p in (recorded / "base", recorded / "slow", tmp_path / "p.json"))
    made = htk("baseline", base, "-o", perf)
    assert made.returncode == 0 and "4 steps, 2 ranks" in made.stderr
    summary = tmp_path / "summary.md"
    limits = ("--fail-on", "step_time>5%", "--min-abs", "50us", "--md", str(summary))
    tripped = htk("diff", perf, slow, *limits, "--format", "json")
    assert tripped.returncode == 4
    assert "gate: step_time>5%: +" in tripped.stderr and "Traceback" not in tripped.stderr
    assert [r["verdict"] for r in json.loads(tripped.stdout)["rows"]] == ["failed"]
    assert "❌" in summary.read_text()
    assert htk("diff", perf, base, *limits).returncode == 0
    assert htk("diff", base, base, *limits).returncode == 0


def test_two_steps_leave_it_open_unless_that_is_refused() -> None:
    asked = ("diff", "sample", "sample", "--steps", "10..11", "--fail-on", "step_time>5%")
    lenient = htk(*asked)
    assert lenient.returncode == 0 and "too few steps" in lenient.stderr
    assert htk(*asked, "--fail-unjudged").returncode == 4


def test_a_baseline_is_compared_without_limits_too(recorded: Path, tmp_path: Path) -> None:
    perf = tmp_path / "perf.json"
    perf.write_text(to_json(build_cost_baseline(open_trace(recorded / "base").tables)))
    found = htk("diff", str(perf), str(recorded / "slow"), "--by", "time", "--format", "json")
    rows = {r["name"]: r for r in json.loads(found.stdout)["rows"]}
    assert rows["total"]["change"] == "slower"
