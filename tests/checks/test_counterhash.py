"""The counter hash against plain Python, and what it promises of data and digests."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch: nox -s checks")

from envaudit.checks import counterhash  # noqa: E402
from envaudit.checks.bits import unsigned_words  # noqa: E402
from tests.checks.injection import flipped  # noqa: E402

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SEEDS = [0, 1, 7, 2**63, MASK]


def mix(word: int) -> int:
    """splitmix64's finaliser as its authors print it."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


@pytest.mark.parametrize("seed", SEEDS)
def test_words_are_those_of_plain_python(seed: int) -> None:
    """Unsigned arithmetic modulo 2**64, on int64 tensors."""
    wanted = [mix((place * GOLDEN + mix(seed)) & MASK) for place in range(5, 305)]
    assert wanted == [word & MASK for word in counterhash.words(300, seed, "cpu", start=5).tolist()]


def test_mixer_gives_the_published_stream() -> None:
    """The first outputs of splitmix64 from the state 1234567, as Rosetta Code lists them."""
    states = [(1234567 + step * GOLDEN) & MASK for step in (1, 2, 3)]
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert wanted == [counterhash.mix_word(state) for state in states]


@pytest.mark.parametrize("k", [1, 2, 127, 2**24, 2**30])
def test_integers_stay_in_their_range_and_fill_it(k: int) -> None:
    """Both ends are reached, where there are draws enough."""
    values = counterhash.integers((50, 80), k, 3, "cpu")
    assert (50, 80) == tuple(values.shape)
    assert -k <= int(values.min()) <= int(values.max()) <= k
    assert int(values.max()) > 0.99 * k
    assert int(values.min()) < -0.99 * k
    assert abs(float(values.double().mean())) < 0.05 * k


def test_integers_made_in_chunks_are_those_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk ends where the next one begins."""
    at_once = counterhash.integers((1000,), 99, 8, "cpu", torch.float32)
    monkeypatch.setattr(counterhash, "_CHUNK", 64)
    assert torch.equal(at_once, counterhash.integers((1000,), 99, 8, "cpu", torch.float32))


def test_permutation_has_every_place_once() -> None:
    """And two seeds have two permutations."""
    one, other = (counterhash.permutation(500, seed, "cpu") for seed in (1, 2))
    assert list(range(500)) == sorted(one.tolist())
    assert one.tolist() != other.tolist()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.bool])
def test_digest_is_the_formula_in_plain_python(dtype: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Σ mix(bits ⊕ mix(i·G + seed)), whether in one chunk or in several."""
    values = counterhash.integers((7, 11), 60, 4, "cpu").to(dtype)
    bits = [word & MASK for word in unsigned_words(values).tolist()]
    wanted = sum(mix(word ^ mix((place * GOLDEN + 9) & MASK)) for place, word in enumerate(bits)) & MASK
    assert wanted == counterhash.digest(values, 9)
    monkeypatch.setattr(counterhash, "_CHUNK", 16)
    assert wanted == counterhash.digest(values, 9)


def test_digest_changes_with_every_single_bit() -> None:
    """No flip of one bit of one element leaves it as it was; two elements exchanged do not either."""
    values = counterhash.integers((40,), 2**20, 5, "cpu", torch.float32)
    digests = {counterhash.digest(flipped(values, place, bit)) for place in range(40) for bit in range(32)}
    assert 40 * 32 == len(digests)
    assert counterhash.digest(values) not in digests
    assert counterhash.digest(values) != counterhash.digest(values.flip(0))


def test_digest_does_not_depend_on_the_layout_in_memory() -> None:
    """The index is the element's, not the byte's."""
    values = counterhash.integers((12, 9), 1000, 6, "cpu", torch.float32)
    assert counterhash.digest(values) == counterhash.digest(values.t().contiguous().t())
