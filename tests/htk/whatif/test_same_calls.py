"""The n-th call of a name on each rank is one call, against counting them."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from htk.whatif.same_calls import same_calls
from tests.htk.whatif.small_step_model import Act, small_model


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), min_size=1, max_size=14))
def test_against_counting(calls: list[tuple[int, str]]) -> None:
    model = small_model([Act(name, 5, lane=name, rank=rank) for rank, name in calls])
    acts, groups = model.graph.activities, same_calls(model)
    seen: Counter[tuple[int, int]] = Counter()
    keys = []
    for rank, name in zip(acts.rank.tolist(), acts.name.tolist(), strict=True):
        keys.append((name, seen[rank, name]))
        seen[rank, name] += 1
    numbers = groups.group_ids.tolist()
    assert len(set(zip(numbers, keys, strict=True))) == len(set(numbers)) == len(set(keys))
