"""What a wrong sum says of whose contribution was not right, in plain integers."""

from __future__ import annotations

from random import Random
from typing import Callable, List

import pytest

from envaudit.checks.collectives.contribution import SUM, Law, counts, expected, law_of, value
from envaudit.checks.collectives.residual import EXAMINED, Residual, Wrong, classify

WORLDS = (2, 3, 8, 9, 65, 513)


def wrong_by(law: Law, residual: Callable[[int], int], start: int = 1, count: int = 4000) -> List[Wrong]:
    """The elements of a sum that differ by a residual from what they must be."""
    table = counts(law)
    found = []
    for index in range(start, start + count):
        off = residual(index)
        if off:
            right = expected(law, index, SUM, table)
            found.append(Wrong(index, right + off, right))
        if len(found) == EXAMINED:
            break
    return found


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "uint8"])
@pytest.mark.parametrize("world", WORLDS)
def test_whole_contribution_of_one_rank_is_recognised(world: int, dtype: str) -> None:
    """Lost, taken twice, negated, shifted by an element either way."""
    law = law_of(world, dtype, SUM, seed=world)
    for rank in {0, world // 2, world - 1}:

        def own(index: int, rank: int = rank) -> int:
            return value(law, rank, index)

        kinds = {
            "dropped": lambda index: -own(index),
            "doubled": own,
            "negated": lambda index: -2 * own(index),
            "shifted": lambda index: own(index + 1) - own(index),
        }
        for kind, residual in kinds.items():
            found = wrong_by(law, residual, count=40 * law.period + 2000)
            assert Residual(kind, (rank,)) == classify(law, found), (kind, rank)
        back = wrong_by(law, lambda index: own(index - 1) - own(index), count=40 * law.period + 2000)
        assert Residual("shifted", (rank,)) == classify(law, back)


def test_old_contribution_of_one_rank_is_recognised() -> None:
    """Within the alphabet everywhere: what the rank sent was another call's."""
    law = law_of(8, "fp32", SUM, seed=1)
    old = law_of(8, "fp32", SUM, seed=2)
    found = wrong_by(law, lambda index: value(old, 5, index) - value(law, 5, index))
    assert Residual("stale", (5,)) == classify(law, found)


def test_few_elements_name_nobody() -> None:
    """Seven of them."""
    law = law_of(8, "fp32", SUM, seed=1)
    found = wrong_by(law, lambda index: -value(law, 3, index))[:7]
    assert Residual() == classify(law, found)


def test_noise_names_nobody() -> None:
    """Random differences in a thousand draws, of every size."""
    random = Random(4)
    accused = 0
    for _ in range(300):
        world = random.choice(WORLDS[:4])
        law = law_of(world, random.choice(("fp32", "bf16", "int8")), SUM, seed=random.randrange(1000))
        reach = random.choice((1, law.k, 10 * law.k))
        found = wrong_by(law, lambda index: random.randint(-reach, reach), count=300)  # noqa: B023
        accused += bool(classify(law, found).kind)
    assert 0 == accused


def test_two_ranks_that_are_both_lost_name_nobody() -> None:
    """Neither alone explains it."""
    law = law_of(8, "fp32", SUM, seed=1)
    found = wrong_by(law, lambda index: -value(law, 3, index) - value(law, 4, index))
    assert Residual() == classify(law, found)


def test_sums_that_wrap_around_are_seen_through() -> None:
    """An int8 that has left its range comes back at the other end."""
    law = law_of(8, "int8", SUM, seed=1)
    found = [
        each._replace(got=((int(each.got or 0) + 128) & 255) - 128)
        for each in wrong_by(law, lambda index: value(law, 6, index))
    ]
    assert Residual("doubled", (6,)) == classify(law, found, bits=8)


def test_result_that_is_no_number_names_nobody() -> None:
    """A NaN among them says that it was no contribution."""
    law = law_of(8, "fp32", SUM, seed=1)
    found = wrong_by(law, lambda index: -value(law, 3, index))
    assert Residual() == classify(law, [found[0]._replace(got=None), *found[1:]])
