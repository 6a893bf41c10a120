"""Tensors compared by their bits."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks.bits import Mismatch, compare  # noqa: E402


def test_equal_tensors_have_no_mismatch() -> None:
    """Also where they hold the same NaN, and lie in memory otherwise."""
    values = torch.tensor([[1.0, float("nan")], [float("inf"), -0.0]])
    assert compare(values, values.clone()) is None
    assert compare(values, values.t().contiguous().t()) is None


def test_minus_zero_is_not_zero() -> None:
    """Which `torch.equal` would not see."""
    wanted, got = torch.tensor([1.0, 0.0]), torch.tensor([1.0, -0.0])
    assert torch.equal(wanted, got)
    assert Mismatch(1, 2, (1,), "00000000", "80000000", (31,), "0.0") == compare(wanted, got)


def test_mismatch_names_the_first_element_and_all_bits() -> None:
    """Index, patterns, flipped bits and the largest difference."""
    wanted = torch.zeros(3, 4, dtype=torch.bfloat16)
    got = wanted.clone()
    got[1, 2], got[2, 0] = 1.0, -2.0
    # 1.0 is 3f80 and -2.0 is c000.
    bits = tuple(bit for bit in range(16) if (0x3F80 | 0xC000) >> bit & 1)
    assert Mismatch(2, 12, (1, 2), "0000", "3f80", bits, "2.0") == compare(wanted, got)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float64, torch.bool])
def test_every_width_is_compared(dtype: object) -> None:
    """One byte to eight."""
    found = compare(torch.zeros(5).to(dtype), torch.tensor([0, 0, 0, 1, 0]).to(dtype))
    assert found is not None
    assert (1, (3,), "1.0") == (found.wrong, found.first_index, found.max_abs)


def test_other_shape_or_dtype_is_an_error_not_a_mismatch() -> None:
    """Nothing is converted or stretched to fit."""
    with pytest.raises(ValueError, match=r"expected \(2,\) torch.float32, got \(1,\)"):
        compare(torch.zeros(2), torch.zeros(1))
    with pytest.raises(ValueError, match=r"got .* torch.int32"):
        compare(torch.zeros(2), torch.zeros(2, dtype=torch.int32))


def test_mismatch_survives_json() -> None:
    """There and back."""
    found = compare(torch.zeros(2), torch.tensor([0.0, float("nan")]))
    assert found is not None
    assert "nan" == found.max_abs
    assert found == Mismatch.from_json(json.loads(json.dumps(found.to_json())))
