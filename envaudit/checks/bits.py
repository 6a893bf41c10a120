"""Tensors compared by their bits: −0 is not 0 here, and a NaN equals the same NaN."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

# Elements of a mismatch that are looked at bit by bit; the number of wrong ones covers them all.
_EXAMINED = 65536


class Mismatch(NamedTuple):
    """How a result differs from the expected one.

    Attributes:
        wrong: elements whose bits differ.
        compared: elements compared.
        first_index: the first of them in row-major order.
        expected_bits: its bit pattern as hexadecimal digits, and `got_bits` likewise.
        got_bits: what came out instead.
        flipped_bits: the positions, 0 the lowest, that differ in any of the elements examined.
        max_abs: the largest |got − expected| among them, as text (`"3.0"`, `"nan"`).
    """

    wrong: int
    compared: int
    first_index: Tuple[int, ...]
    expected_bits: str
    got_bits: str
    flipped_bits: Tuple[int, ...]
    max_abs: str

    def to_json(self) -> Dict[str, Any]:
        """Only strings, integers and lists of them."""
        row = dict(self._asdict())
        row["first_index"] = list(self.first_index)
        row["flipped_bits"] = list(self.flipped_bits)
        return row

    @classmethod
    def from_json(cls, row: Dict[str, Any]) -> Mismatch:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: the row was not written by it.
        """
        return cls(
            wrong=int(row["wrong"]),
            compared=int(row["compared"]),
            first_index=tuple(int(index) for index in row["first_index"]),
            expected_bits=str(row["expected_bits"]),
            got_bits=str(row["got_bits"]),
            flipped_bits=tuple(int(bit) for bit in row["flipped_bits"]),
            max_abs=str(row["max_abs"]),
        )


def integer_view(tensor: Any) -> Any:
    """The same bits as signed integers of the same width (bool as bytes); contiguous."""
    import torch

    by_width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    flat = tensor.detach().contiguous()
    if flat.dtype == torch.bool:
        return flat.to(torch.int8)
    wanted = by_width[flat.element_size()]
    return flat if flat.dtype == wanted else flat.view(wanted)


def unsigned_words(tensor: Any) -> Any:
    """The elements' bit patterns as int64, flattened; those of 64 bits as they wrap."""
    import torch

    view = integer_view(tensor).reshape(-1)
    width = 8 * view.element_size()
    return view if width == 64 else view.to(torch.int64).bitwise_and_((1 << width) - 1)


def count_different(expected: Any, got: Any) -> Any:
    """How many elements differ in their bits, as a tensor on the device that no one waits for.

    Raises:
        ValueError: they are not of one shape and dtype.
    """
    if expected.shape != got.shape or expected.dtype != got.dtype:
        raise ValueError(
            f"expected {tuple(expected.shape)} {expected.dtype}, got {tuple(got.shape)} {got.dtype}"
        )
    return (integer_view(expected) != integer_view(got)).sum()


def compare(expected: Any, got: Any) -> Optional[Mismatch]:
    """What differs between two tensors of one device, or None when every bit agrees.

    Raises:
        ValueError: they are not of one shape and dtype.
    """
    import torch

    count = int(count_different(expected, got))
    if not count:
        return None
    wanted, found = integer_view(expected).reshape(-1), integer_view(got).reshape(-1)
    places = (wanted != found).nonzero().reshape(-1)[:_EXAMINED].cpu()
    wanted, found = wanted.cpu()[places], found.cpu()[places]
    width = 8 * wanted.element_size()
    mask = (1 << width) - 1
    changed = wanted.bitwise_xor(found)
    flipped = [bit for bit in range(width) if bool(((changed >> bit) & 1).any())]
    far = [
        _values(side, tensor.dtype).to(torch.float64) for side, tensor in ((wanted, expected), (found, got))
    ]
    return Mismatch(
        wrong=count,
        compared=got.numel(),
        first_index=_unravel(int(places[0]), list(got.shape)),
        expected_bits=f"{int(wanted[0]) & mask:0{width // 4}x}",
        got_bits=f"{int(found[0]) & mask:0{width // 4}x}",
        flipped_bits=tuple(flipped),
        max_abs=repr(float((far[1] - far[0]).abs().max())),
    )


def _values(view: Any, dtype: Any) -> Any:
    import torch

    if dtype == torch.bool:
        return view
    values = view.view(dtype)
    # float8 converts to no other type than float32 on some releases.
    return values.to(torch.float32) if values.element_size() == 1 else values


def _unravel(place: int, shape: List[int]) -> Tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return tuple(reversed(index))
