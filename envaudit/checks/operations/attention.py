"""Attention that selects one value: the softmax is one-hot, and the result is V by a gather.

Keys are codes of two parts: key j has a 1 in dimension j div D/2 of the first half and one in dimension
j mod D/2 of the second, which makes (D/2)² different keys of D dimensions. The query that selects it is 0
there and −L everywhere else; `tolerance.attention_penalty` says why its softmax is exact.

Under a causal mask keys come twice, where there is room: a query selects one whose double lies behind the
mask, with another value, and a mask that lets it through halves the weight.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from envaudit.checks.counterhash import derive, integers, words
from envaudit.checks.device import CPU, DeviceFacts
from envaudit.checks.operations import Case, NotRunnable, Prepared
from envaudit.checks.precision import full_precision, need_units
from envaudit.checks.tolerance import PRECISIONS, attention_penalty


class Attention(NamedTuple):
    """One attention: as many queries as keys, of which at most (head_dim / 2)² are different."""

    batch: int
    heads: int
    length: int
    head_dim: int
    fused: bool
    causal: bool = False

    @property
    def different_keys(self) -> int:
        """After so many keys they begin again; the last query, which sees all, finds one that is single."""
        return self.length // 2 + 1 if self.causal else self.length


_VARIANTS: Dict[str, Dict[str, bool]] = {
    "fused": {"fused": True},
    "causal": {"fused": True, "causal": True},
    "explicit": {"fused": False},
}
_DTYPES = ("fp32", "bf16", "fp16")

# Values are exact in TF32 and in fp16 as well, whichever the product runs in.
_LARGEST_VALUE = 2**11


def CASES(facts: DeviceFacts) -> List[Case]:  # noqa: N802
    """Fused, fused and causal, and written out, in fp32, bf16 and fp16."""
    sizes = (1, 2, 192, 64) if facts.kind == CPU else (4, 16, 1024, 64)
    return [
        attention_case(f"attention/{dtype}/{name}", dtype, Attention(*sizes, **variant), facts)
        for dtype in _DTYPES
        for name, variant in _VARIANTS.items()
    ]


def attention_case(name: str, dtype: str, attention: Attention, facts: DeviceFacts) -> Case:
    """A case of one attention."""

    def prepare(device: Any, seed: int, scaled: bool) -> Prepared:
        need_units(dtype, facts)
        return _prepare(attention, dtype, device, seed)

    shape = f"{attention.batch}x{attention.heads}x{attention.length}x{attention.head_dim}"
    return Case(name, dtype, shape, True, prepare)


def _prepare(attention: Attention, dtype: str, device: Any, seed: int) -> Prepared:
    import torch

    if attention.fused and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        raise NotRunnable("needs torch 2.0: scaled_dot_product_attention")
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    selected = _selected(attention, seed, device)
    code = _codes(attention, kind, device)
    query = (code - 1)[selected] * attention_penalty(attention.head_dim)
    key = code[: attention.length].expand(attention.batch, attention.heads, -1, -1).contiguous()
    value = _values(attention, dtype, seed, device, kind)

    def expected(where: Any) -> Tuple[Any, ...]:
        place = _selected(attention, seed, where).unsqueeze(-1).expand(-1, -1, -1, attention.head_dim)
        return (_values(attention, dtype, seed, where, kind).gather(2, place),)

    pairs = attention.batch * attention.heads * attention.length * attention.length
    run = _fused(attention, query, key, value) if attention.fused else _explicit(attention, query, key, value)
    return Prepared(run, expected, flops=4 * pairs * attention.head_dim)


def _fused(attention: Attention, query: Any, key: Any, value: Any) -> Callable[[], Tuple[Any, ...]]:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention

    def run() -> Tuple[Any, ...]:
        with full_precision():
            return (attend(query, key, value, is_causal=attention.causal),)

    return run


def _explicit(attention: Attention, query: Any, key: Any, value: Any) -> Callable[[], Tuple[Any, ...]]:
    import torch

    def run() -> Tuple[Any, ...]:
        with full_precision():
            score = torch.matmul(query, key.transpose(-2, -1)) * attention.head_dim**-0.5
            return (torch.matmul(torch.softmax(score, dim=-1), value),)

    return run


def _codes(attention: Attention, kind: Any, device: Any) -> Any:
    import torch

    half = attention.head_dim // 2
    place = torch.arange(attention.length, device=device)
    number = torch.remainder(place, attention.different_keys)
    code = torch.zeros(attention.length, attention.head_dim, dtype=kind, device=device)
    code[place, torch.div(number, half, rounding_mode="floor")] = 1
    code[place, half + torch.remainder(number, half)] = 1
    return code


def _selected(attention: Attention, seed: int, device: Any) -> Any:
    # The key that each query selects; under a causal mask one that is not after it, and whose double is.
    import torch

    shape = (attention.batch, attention.heads, attention.length)
    count = attention.batch * attention.heads * attention.length
    word = (words(count, derive(seed, "selected"), device) >> 1).reshape(shape)
    if not attention.causal:
        return torch.remainder(word, attention.length)
    query = torch.arange(attention.length, device=device)
    first = (query - attention.different_keys + 1).clamp_min(0)
    last = query.clamp_max(attention.different_keys - 1)
    return first + torch.remainder(word, last - first + 1)


def _values(attention: Attention, dtype: str, seed: int, device: Any, kind: Any) -> Any:
    k = min(_LARGEST_VALUE, 1 << PRECISIONS[dtype].operand_bits)
    shape = (attention.batch, attention.heads, attention.length, attention.head_dim)
    value = integers(shape, k, derive(seed, "V"), device, kind)
    # No zeros: an exponential that ends at 2**-127 instead of 0, as some kernels' own does, is then
    # rounded away, as it should be, and a result that was never written is not taken for right.
    return value + (value == 0).to(kind)
