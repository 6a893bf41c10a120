"""The law that makes a DDP step exact whatever the number of ranks."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from envaudit.checks.collectives.ddp import IN, unit_of

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")


def test_average_of_a_gradient_is_exact_in_every_world_to_1000() -> None:
    """Divided by W, and multiplied by 1/W rounded to fp32: both give m, of both signs."""
    import torch

    wrong = []
    for world in range(1, 1001):
        unit = unit_of(world)
        gradient = torch.tensor([float(world * unit), -float(world * unit)], dtype=torch.float32)
        assert world * unit * IN <= 2**24
        divided = gradient / world
        multiplied = gradient * torch.tensor(1.0 / world, dtype=torch.float32)
        if divided.tolist() != [unit, -unit] or multiplied.tolist() != [unit, -unit]:
            wrong.append(world)
    assert [] == wrong


def test_unit_without_its_lowest_bit_would_not_do() -> None:
    """Some world where 1/W · W · 2**b is not 2**b: the reason for the law."""
    import torch

    spoilt = [
        world
        for world in range(1, 1001)
        if float(torch.tensor(float(world)) * torch.tensor(1.0 / world, dtype=torch.float32)) != 1.0
    ]
    assert spoilt


def test_weights_of_a_rank_sum_to_one_unit_in_every_output() -> None:
    """The bias has the sum over the rows for its gradient, and must average exactly, too."""
    from envaudit.checks.collectives.ddp import _weights

    for world in (2, 3, 41):
        rows = _weights(world, 1, 5, "cpu")
        assert {world * unit_of(world)} == {abs(each) for each in rows.sum(dim=0).tolist()}
        assert {0, world * unit_of(world)} == {abs(each) for each in rows.reshape(-1).tolist()}
