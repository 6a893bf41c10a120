"""What a wrong result looks like at one rank: told to the hub, which names the culprit from all ranks'."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from envaudit.checks.bits import Mismatch, integer_view
from envaudit.checks.collectives.calls import Call
from envaudit.checks.collectives.contribution import SUM, Law
from envaudit.checks.collectives.items import Item
from envaudit.checks.collectives.reference import Block, difference
from envaudit.checks.collectives.residual import EXAMINED, Residual, Wrong, classify

_INTEGER_BITS = {"int8": 8, "uint8": 8, "int32": 32, "int64": 64}


class Evidence(NamedTuple):
    """How the results of one collective at one rank differ from what they must be.

    Attributes:
        wrong: elements with other bits.
        mismatch: how the first block that is wrong differs; None where only a guard is.
        sources: of copies, the ranks whose bits arrived wrong and in how many elements.
        residual: of sums, what explains the difference.
        guards: buffers beside which something was written.
    """

    wrong: int = 0
    mismatch: Optional[Mismatch] = None
    sources: Mapping[int, int] = MappingProxyType({})
    residual: Residual = Residual()
    guards: int = 0

    def to_json(self) -> Dict[str, Any]:
        """Only strings, integers, lists and maps."""
        return {
            "wrong": self.wrong,
            "mismatch": self.mismatch.to_json() if self.mismatch else None,
            "sources": {str(source): count for source, count in sorted(self.sources.items())},
            "residual": self.residual.to_json(),
            "guards": self.guards,
        }

    def words(self) -> str:
        """One line for people."""
        said = []
        if self.mismatch:
            first = self.mismatch
            said.append(
                f"{self.wrong} elements wrong, the first at {first.first_index[0]}: "
                f"{first.got_bits} instead of {first.expected_bits}"
            )
        if self.sources:
            said.append(f"from rank {', '.join(map(str, sorted(self.sources)))}")
        if self.guards:
            said.append("written beside its buffer")
        return "; ".join(said)


def evidence_of(item: Item, call: Call, blocks: List[Block]) -> Optional[Evidence]:
    """What is wrong with what came out of a call; None when nothing is."""
    wrong = 0
    first: Optional[Mismatch] = None
    sources: Dict[int, int] = {}
    residual = Residual()
    for block in blocks:
        mismatch = difference(block)
        if mismatch is None:
            continue
        wrong += mismatch.wrong
        first = first or mismatch
        if block.source >= 0:
            sources[block.source] = mismatch.wrong
        elif item.reduction == SUM and call.law is not None:
            residual = _residual(item, call.law, block)
    guards = sum(not made.intact() for made in call.buffers)
    if first is None and not guards:
        return None
    return Evidence(wrong, first, sources, residual, guards)


def _residual(item: Item, law: Law, block: Block) -> Residual:
    places = (integer_view(block.expected) != integer_view(block.got)).nonzero().reshape(-1)[:EXAMINED]
    got, expected = block.got[places].cpu(), block.expected[places].cpu()
    found = [
        Wrong(block.start + int(place), _whole(out), int(right))
        for place, out, right in zip(places.tolist(), _plain(got), _plain(expected))
    ]
    return classify(law, found, _INTEGER_BITS.get(item.dtype, 0))


def _plain(tensor: Any) -> List[Any]:
    import torch

    return list((tensor.to(torch.float64) if tensor.is_floating_point() else tensor).tolist())


def _whole(number: Any) -> Optional[int]:
    """A whole number, or None: a NaN, an infinity, a fraction."""
    if isinstance(number, int):
        return number
    return int(number) if abs(number) < 2**63 and number == int(number) else None
