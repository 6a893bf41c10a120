"""Faults of every kind at one rank: detected, named right, and nobody accused where nothing is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from random import Random
from typing import Dict, List

import pytest

from tests.checks.collectives.crew import PLAN, Crew, Trial, detected, misnamed, names_right
from tests.checks.collectives.faults import KINDS

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")


@pytest.fixture(scope="module")
def four() -> Iterator[Crew]:
    """Four ranks that stay."""
    with Crew(4) as crew:
        yield crew


def test_group_without_a_fault_is_right(four: Crew) -> None:
    """And nobody is accused."""
    for seed in (1, 2, 3):
        outcomes = four.outcomes(None, PLAN._replace(seed=seed), seed)
        assert not detected(outcomes)
    assert [] == four.suspects(outcomes, None, PLAN)


@pytest.mark.parametrize("kind", KINDS)
def test_fault_is_detected_and_named(four: Crew, kind: str) -> None:
    """Once in each kind, at a random rank."""
    trial = Trial.drawn(kind, 4, Random(kind))
    outcomes = four.outcomes(trial, PLAN, seed=11)
    assert detected(outcomes)
    suspects = four.suspects(outcomes, trial, PLAN, seed=11)
    assert (True, False) == (names_right(suspects, trial), misnamed(suspects, trial)), (trial, suspects)


@pytest.mark.collectives
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world", [2, 3, 4, 5, 6, 7, 8])
def test_campaign_of_faults(world: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind many times in worlds of 2 to 8, every call spoilt and one in ten; and clean runs between."""
    random = Random(world)
    each = 10 if world in (2, 3, 4, 8) else 4
    counts: Dict[str, List[int]] = {}
    alarms = clean = 0
    with Crew(world) as crew:
        for _ in range(each):
            for kind in KINDS:
                for rare in (False, True):
                    trial = Trial.drawn(kind, world, random)._replace(permille=100 if rare else 1000)
                    seed = random.randrange(1 << 30)
                    outcomes = crew.outcomes(trial, PLAN._replace(seed=seed), seed)
                    row = counts.setdefault(f"{kind}{' rare' if rare else ''}", [0, 0, 0, 0])
                    row[0] += 1
                    if not detected(outcomes):
                        continue
                    suspects = crew.suspects(outcomes, trial, PLAN._replace(seed=seed), seed)
                    row[1] += 1
                    row[2] += names_right(suspects, trial)
                    row[3] += misnamed(suspects, trial)
            for _ in range(30 // each + 1):
                clean += 1
                seed = random.randrange(1 << 30)
                alarms += detected(crew.outcomes(None, PLAN._replace(seed=seed), seed))
    with capsys.disabled():
        print(f"\nW={world}: {alarms} alarms in {clean} clean runs; runs, detected, named, misnamed:")
        for kind, row in counts.items():
            print(f"  {kind:18} {' '.join(f'{count:4}' for count in row)}")
    always = [row for kind, row in counts.items() if not kind.endswith("rare")]
    assert 0 == alarms
    assert sum(row[1] for row in always) >= 0.99 * sum(row[0] for row in always)
    assert 0 == sum(row[3] for row in counts.values())
