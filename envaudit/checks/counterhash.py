"""Test data from a counter hash: element i of a stream depends on (seed, i) and on nothing else.

The mixer is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
generators", OOPSLA 2014). torch has no arithmetic on unsigned 64-bit integers, so it runs on int64,
whose additions and products wrap around; a logical shift is an arithmetic one with the copied sign
bits masked away. The same stream comes out on every device and in plain Python (tests/checks), so a
device under test is never asked for its own random numbers.
"""

from __future__ import annotations

from typing import Any, Sequence

_GOLDEN = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MASK = 2**64 - 1

# Elements made at once: three temporaries of 8 bytes each, 400 MB at most.
_CHUNK = 2**24


def mix_word(word: int) -> int:
    """The mixer on one word in [0, 2**64)."""
    word = ((word ^ (word >> 30)) * _MIX_1) & _MASK
    word = ((word ^ (word >> 27)) * _MIX_2) & _MASK
    return word ^ (word >> 31)


def derive(seed: int, label: str) -> int:
    """A seed of its own for one use of a seed: streams of different labels are unrelated."""
    word = seed & _MASK
    for byte in label.encode():
        word = mix_word(word ^ ((byte + 1) * _GOLDEN & _MASK))
    return word


def words(count: int, seed: int, device: Any, start: int = 0) -> Any:
    """`count` pseudo-random 64-bit words from counter `start` on, as an int64 tensor on `device`.

    Word i is mix(i·G + mix(seed)), G the golden ratio's increment of splitmix64.
    """
    import torch

    counter = torch.arange(start, start + count, dtype=torch.int64, device=device)
    counter.mul_(_signed(_GOLDEN)).add_(_signed(mix_word(seed & _MASK)))
    return _mix_(counter)


def integers(shape: Sequence[int], k: int, seed: int, device: Any, dtype: Any = None) -> Any:
    """A tensor of integers in [-k, k], near enough uniform, in `dtype` (int64 without one).

    31 bits of each word are scaled to 2k + 1 values; k must stay below 2**31.
    """
    import torch

    count = 1
    for size in shape:
        count *= size
    values = torch.empty(count, dtype=dtype or torch.int64, device=device)
    for start in range(0, count, _CHUNK):
        size = min(_CHUNK, count - start)
        part = _shift(words(size, seed, device, start), 33)
        part.mul_(2 * k + 1).bitwise_right_shift_(31).sub_(k)
        values[start : start + size] = part.to(values.dtype)
    return values.reshape(tuple(shape))


def permutation(count: int, seed: int, device: Any) -> Any:
    """A permutation of range(count) as an int64 tensor, the same on every device.

    The order of the hashed counters, sorted on the CPU: sorting is one of the operations under test.
    """
    import torch

    return torch.sort(words(count, seed, "cpu"), stable=True).indices.to(device)


def digest(tensor: Any, seed: int = 0) -> int:
    """Σ mix(bits_i ⊕ mix(i·G + seed)) mod 2**64 over the elements in row-major order.

    bits_i is the element's bit pattern as an unsigned integer, i its index. The sum has no order, so
    any device may form it as it likes; a change of one element always changes it, for mix is a
    bijection.
    """
    from envaudit.checks.bits import unsigned_words

    bits = unsigned_words(tensor)
    total = 0
    for start in range(0, bits.numel(), _CHUNK):
        part = bits[start : start + _CHUNK]
        place = words_of_places(part.numel(), seed, part.device, start)
        total += int(_mix_(place.bitwise_xor_(part)).sum())
    return total & _MASK


def words_of_places(count: int, seed: int, device: Any, start: int = 0) -> Any:
    """mix(i·G + seed) for the places from `start` on."""
    import torch

    place = torch.arange(start, start + count, dtype=torch.int64, device=device)
    return _mix_(place.mul_(_signed(_GOLDEN)).add_(_signed(seed & _MASK)))


def _mix_(word: Any) -> Any:
    word.bitwise_xor_(_shift(word, 30)).mul_(_signed(_MIX_1))
    word.bitwise_xor_(_shift(word, 27)).mul_(_signed(_MIX_2))
    return word.bitwise_xor_(_shift(word, 31))


def _shift(word: Any, places: int) -> Any:
    # The logical shift of an unsigned word.
    return (word >> places).bitwise_and_((1 << (64 - places)) - 1)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
