"""What each rank puts into a reduction, so that every rank knows the sum of all without asking anyone.

The law. In a world of W ranks, rank r contributes to element i

    v_r(i) = G(i, digit j of r)    with j = i mod D, where (r + ⌊i / D⌋) mod S = 0; else the neutral element.

The digits are those of r in base 8, D = ⌈log8 W⌉ of them, and G(i, d) is an integer of ±[1, k] from a
counter hash (`checks/counterhash.py`). In one element all active ranks with the same digit contribute the
same number, so the sum over any number of ranks is one of eight terms,

    Σ_r v_r(i) = Σ_d n(i, d) · G(i, d),

n(i, d) the number of active ranks with digit d at j: a table of S · D · 8 counts. Two ranks differ in a
digit, and where it counts they contribute the same once in 2k times: over many elements each is told apart.

Exactness. ⌈W / S⌉ ranks at most are active in one element, and every partial sum, in whatever order and in
the data's own precision, is an integer within ⌈W / S⌉ · k. With ⌈W / S⌉ · k ≤ 2**p nothing rounds. S is the
smallest that leaves k ≥ 3: with fewer values a lost contribution would look like another's.

Products: v_r(i) is one of ±1, ±2, at most six ranks are active, and any product is within ±64.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from envaudit.checks.counterhash import derive, mix_word

# p, as in `checks/tolerance.py`, and the integers' own: 2**p must be representable, or the number before it.
_LARGEST_SUM: Dict[str, int] = {
    "fp64": 2**53,
    "fp32": 2**24,
    "fp16": 2**11,
    "bf16": 2**8,
    "e4m3": 2**4,
    "e5m2": 2**3,
    "int64": 2**63 - 1,
    "int32": 2**31 - 1,
    "int8": 127,
    "uint8": 255,
}
REDUCIBLE: Tuple[str, ...] = tuple(_LARGEST_SUM)
UNSIGNED = ("uint8",)
# 31 bits of a hash word are scaled to 1 … k within 64 bits.
_LARGEST_K = 2**31 - 1
_LEAST_K = 3
_ACTIVE_IN_PRODUCT = 6

SUM, MIN, MAX, PRODUCT, AVG = "sum", "min", "max", "product", "avg"
REDUCTIONS = (SUM, MIN, MAX, PRODUCT, AVG)

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
# Elements made at once: a few temporaries of 8 bytes each.
_CHUNK = 2**22


class Law(NamedTuple):
    """The contributions of all ranks to one reduction.

    Attributes:
        world: W, how many ranks.
        k: the largest magnitude; 2 for products.
        stride: S, one rank in so many is active in an element.
        digits: D, the base-8 digits of a rank.
        seed: of the counter hash, for this reduction alone.
        signed: whether contributions may be negative.
        product: whether it is multiplied; the neutral element is then 1.
    """

    world: int
    k: int
    stride: int
    digits: int
    seed: int
    signed: bool = True
    product: bool = False

    @property
    def neutral(self) -> int:
        """What a rank contributes where it is not active."""
        return 1 if self.product else 0

    @property
    def period(self) -> int:
        """After so many elements the pattern of active ranks and digits repeats."""
        return self.stride * self.digits

    @property
    def terms(self) -> int:
        """How many digits there can be: the terms of an expected sum."""
        return min(8, self.world)


def law_of(world: int, dtype: str, reduction: str, seed: int) -> Law:
    """The law of one reduction in a world.

    Raises:
        KeyError: no reduction is defined in that dtype.
        ValueError: a world of no rank.
    """
    if world < 1:
        raise ValueError(f"a world of {world} ranks")
    digits = 1
    while 8**digits < world:
        digits += 1
    signed = dtype not in UNSIGNED
    own = derive(seed, f"law/{dtype}/{reduction}")
    if reduction == PRODUCT:
        _LARGEST_SUM[dtype]
        stride = -(-world // _ACTIVE_IN_PRODUCT)
        return Law(world, 2, stride, digits, own, signed, product=True)
    largest = _LARGEST_SUM[dtype]
    stride = 1
    while largest // -(-world // stride) < min(_LEAST_K, largest) and stride < world:
        stride += 1
    return Law(world, min(largest // -(-world // stride), _LARGEST_K), stride, digits, own, signed)


def value(law: Law, rank: int, index: int) -> int:
    """v_rank(index) as an integer, in plain Python: what `values` makes on a device, one at a time."""
    if (rank + index // law.digits) % law.stride:
        return law.neutral
    return entry(law, index, (rank >> (3 * (index % law.digits))) & 7)


def entry(law: Law, index: int, digit: int) -> int:
    """G(index, digit)."""
    word = mix_word((((index << 3) + digit) * _GOLDEN + mix_word(law.seed)) & _MASK)
    magnitude = 1 + (((word >> 33) * law.k) >> 31)
    return -magnitude if law.signed and word & 1 else magnitude


def counts(law: Law) -> List[List[int]]:
    """n(i, d): for each of the `period` classes of i, (⌊i / D⌋ mod S) · D + i mod D, eight counts."""
    table = [[0] * 8 for _ in range(law.period)]
    for rank in range(law.world):
        residue = -rank % law.stride
        for place in range(law.digits):
            table[residue * law.digits + place][(rank >> (3 * place)) & 7] += 1
    return table


def expected(law: Law, index: int, reduction: str, table: Sequence[Sequence[int]]) -> int:
    """The reduction of all ranks' contributions to one element, eight terms whatever W.

    The sum for `avg`. `table` is what `counts` gives.
    """
    row = table[index // law.digits % law.stride * law.digits + index % law.digits]
    terms = [(entry(law, index, digit), count) for digit, count in enumerate(row) if count]
    if reduction == PRODUCT:
        product = 1
        for term, count in terms:
            product *= term**count
        return product
    if reduction in (MIN, MAX):
        found = [term for term, _ in terms]
        if sum(row) < law.world:
            found.append(0)
        return min(found) if reduction == MIN else max(found)
    return sum(term * count for term, count in terms)


def values(law: Law, rank: int, count: int, device: Any, start: int = 0) -> Any:
    """v_rank of `count` elements from `start` on, as an int64 tensor on `device`."""
    import torch

    whole = torch.empty(count, dtype=torch.int64, device=device)
    for at in range(0, count, _CHUNK):
        size = min(_CHUNK, count - at)
        index = torch.arange(start + at, start + at + size, dtype=torch.int64, device=device)
        digit: Any = rank
        if law.digits > 1:
            places = [(rank >> (3 * place)) & 7 for place in range(law.digits)]
            digit = torch.tensor(places, dtype=torch.int64, device=device)[index % law.digits]
        part = _entries(law, index, digit)
        if law.stride > 1:
            idle = (_floor(index, law.digits) + rank) % law.stride != 0
            part.masked_fill_(idle, law.neutral)
        whole[at : at + size] = part
    return whole


def reduced(law: Law, reduction: str, count: int, device: Any, start: int = 0) -> Any:
    """`expected` of `count` elements from `start` on, as an int64 tensor on `device`."""
    import torch

    table = torch.tensor(counts(law), dtype=torch.int64, device=device)
    # In a small world of one class every digit has the same count in each element.
    same = table[0].tolist() if law.period == 1 else None
    whole = torch.empty(count, dtype=torch.int64, device=device)
    for at in range(0, count, _CHUNK):
        size = min(_CHUNK, count - at)
        index = torch.arange(start + at, start + at + size, dtype=torch.int64, device=device)
        classes = None if same else _floor(index, law.digits) % law.stride * law.digits + index % law.digits
        whole[at : at + size] = _fold(law, reduction, index, same or table.t()[:, classes])
    return whole


def _fold(law: Law, reduction: str, index: Any, rows: Any) -> Any:
    """One term a digit, `rows[digit]` being its count: an integer, or one for each element."""
    import torch

    total = torch.full_like(index, 1 if reduction == PRODUCT else 0)
    active = torch.zeros_like(index)
    far = -_LARGEST_K - 1 if reduction == MAX else _LARGEST_K + 1
    if reduction in (MIN, MAX):
        total.fill_(far)
    for digit in range(law.terms):
        term = _entries(law, index, digit)
        count = rows[digit]
        if reduction in (MIN, MAX):
            active += count
            term = term if isinstance(count, int) else term.masked_fill(count == 0, far)
            total = torch.minimum(total, term) if reduction == MIN else torch.maximum(total, term)
        elif reduction == PRODUCT:
            # Signs and powers of two apart: ±1, ±2 to the power of the count.
            power = (term.abs() - 1) * count
            odd = (term < 0) & (torch.as_tensor(count, device=index.device) % 2 == 1)
            total = (total << power) * (1 - 2 * odd.to(torch.int64))
        else:
            total += term.mul_(count)
    if reduction in (MIN, MAX):
        idle = active < law.world
        zero = torch.zeros_like(total)
        bounded = torch.minimum(total, zero) if reduction == MIN else torch.maximum(total, zero)
        total = torch.where(idle, bounded, total)
    return total


def magnitudes(law: Law, count: int, device: Any, start: int = 0) -> Any:
    """Σ_r |v_r| of `count` elements, which bounds what rounding may do to their average."""
    import torch

    positive = reduced(law._replace(signed=False), SUM, count, device, start)
    return positive.to(torch.float64)


def _entries(law: Law, index: Any, digit: Any) -> Any:
    """G(index, digit) for a tensor of indices; `digit` is an integer or a tensor beside it."""
    import torch

    word = (index << 3).add_(digit)
    word.mul_(_wrapped(_GOLDEN)).add_(_wrapped(mix_word(law.seed)))
    word.bitwise_xor_(_shifted(word, 30)).mul_(_wrapped(0xBF58476D1CE4E5B9))
    word.bitwise_xor_(_shifted(word, 27)).mul_(_wrapped(0x94D049BB133111EB))
    word.bitwise_xor_(_shifted(word, 31))
    magnitude = _shifted(word, 33).mul_(law.k)
    magnitude = magnitude.bitwise_right_shift_(31).add_(1)
    if law.signed:
        sign = word.bitwise_and_(1).mul_(-2).add_(1)
        magnitude.mul_(sign)
    return magnitude if magnitude.dtype == torch.int64 else magnitude.to(torch.int64)


def _floor(index: Any, divisor: int) -> Any:
    import torch

    return index if divisor == 1 else torch.div(index, divisor, rounding_mode="floor")


def _shifted(word: Any, places: int) -> Any:
    return (word >> places).bitwise_and_((1 << (64 - places)) - 1)


def _wrapped(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word
