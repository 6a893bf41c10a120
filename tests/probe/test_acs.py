"""ACS bits from the configuration space of a bridge."""

from __future__ import annotations

import struct
from typing import Callable, Dict, List, Optional

import pytest

from envaudit.probe import acs
from envaudit.probe.context import Context
from tests.probe.pcibus import acs_of, space_of

MakeNode = Callable[..., Context]

_BRIDGE = "0000:15:01.0"


def bits_of(make_node: MakeNode, space: Optional[bytes]) -> Optional[List[str]]:
    """What is read of a bridge with this configuration space."""
    files: Dict[str, bytes] = {}
    if space is not None:
        files[f"/sys/bus/pci/devices/{_BRIDGE}/config"] = space
    return acs.control(make_node(files), _BRIDGE)


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (0x00, []),
        (0x01, ["SrcValid"]),
        (0x1D, ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"]),
        (0x7F, list(acs.BITS)),
    ],
)
def test_control_register_is_read_bit_by_bit(make_node: MakeNode, control: int, expected: List[str]) -> None:
    """0x1D is what Linux sets where an IOMMU isolates devices."""
    assert expected == bits_of(make_node, acs_of(control))


def test_reserved_bits_are_no_services(make_node: MakeNode) -> None:
    """Bits above the seventh are not defined by revision 4 of the specification."""
    assert [] == bits_of(make_node, acs_of(0xFF80))


def test_acs_may_be_the_first_capability_or_the_last_that_fits(make_node: MakeNode) -> None:
    """The chain is followed wherever it leads."""
    first = space_of({0x100: struct.pack("<HHH", 0x000D, 0x5F, 0x04)})
    last = space_of({0x100: b"\x01\x00", 0xFF8: struct.pack("<HHH", 0x000D, 0x5F, 0x10)})
    assert (["ReqRedir"], ["UpstreamFwd"]) == (bits_of(make_node, first), bits_of(make_node, last))


@pytest.mark.parametrize(
    "space",
    [bytes(256), bytes(4096), b"\xff" * 4096, space_of({0x100: b"\x01\x00", 0x140: b"\x0b\x00"})],
    ids=["conventional", "no capability", "gone from the bus", "others only"],
)
def test_bridge_without_acs_has_nothing_set(make_node: MakeNode, space: bytes) -> None:
    """A conventional bridge, one of a virtual machine, one that fell off the bus."""
    assert [] == bits_of(make_node, space)


@pytest.mark.parametrize("space", [None, b"", bytes(64)])
def test_space_that_ends_where_a_user_may_read_is_unread(make_node: MakeNode, space: Optional[bytes]) -> None:
    """Unknown is not `off`."""
    assert bits_of(make_node, space) is None


@pytest.mark.parametrize("following", [0x100, 0x104, 0x0FC, 0x004])
def test_chain_that_goes_in_a_circle_or_astray_ends(make_node: MakeNode, following: int) -> None:
    """A header that points to itself, into itself, or below the extended space."""
    space = bytearray(4096)
    space[0x100:0x104] = struct.pack("<I", 0x0001 | 1 << 16 | following << 20)
    assert [] == bits_of(make_node, bytes(space))


def test_denied_space_is_unread(make_node: MakeNode) -> None:
    """A container whose /sys is masked."""
    path = f"/sys/bus/pci/devices/{_BRIDGE}/config"
    assert acs.control(make_node({path: acs_of(0x1D)}, denied=["/sys"]), _BRIDGE) is None


def test_way_down_has_what_any_of_its_bridges_has() -> None:
    """One redirecting bridge is enough."""
    bits = {"a": [], "b": ["UpstreamFwd"], "c": ["ReqRedir", "UpstreamFwd"]}
    assert ("off", "ReqRedir UpstreamFwd", "off") == (
        acs.above(["a"], bits),
        acs.above(["a", "b", "c"], bits),
        acs.above([], bits),
    )
