"""The search for a path's MTU: over the loopback, and on ways that lose what is too large."""

from __future__ import annotations

import os
import socket
import time

import pytest

from envaudit.checks.collectives.mtu import (
    BLACK_HOLE,
    LESS,
    OK,
    SILENT,
    Peer,
    Prober,
    chosen_peers,
    interface_mtu,
)

LOOPBACK = "127.0.0.1"


def searched(most: int, takes: int, *, told: bool = False) -> Peer:
    """A way that passes so many bytes; a router on it says so, or says nothing."""
    peer = Peer("node02", (LOOPBACK, 1), most, 576)
    for _ in range(20):
        sent = [] if peer.done else list(peer.sizes)
        for size in sent:
            if size <= takes:
                peer.arrived(size)
        if any(size > takes for size in sent):
            if told and takes:
                peer.refused(takes)
            else:
                peer.lost()
    return peer


@pytest.mark.parametrize("takes", [576, 577, 1400, 1404, 1500, 8999])
@pytest.mark.parametrize(("told", "state"), [(True, LESS), (False, BLACK_HOLE)])
def test_search_ends_at_the_largest_size_that_passes(takes: int, told: bool, state: str) -> None:
    """To the byte, in a few rounds."""
    peer = searched(9000, takes, told=told)
    assert (True, takes, state) == (peer.done, peer.good, peer.state)


def test_way_that_passes_all_is_equal_at_once() -> None:
    """One round."""
    peer = searched(9000, 9000)
    assert (True, 9000, OK) == (peer.done, peer.good, peer.state)


def test_way_that_passes_nothing_is_silent() -> None:
    """Which says nothing of its MTU."""
    peer = searched(9000, 0)
    assert (True, SILENT) == (peer.done, peer.state)


def test_two_nodes_find_the_loopback_s_own_mtu() -> None:
    """Each is the other's echo."""
    nonce = os.urandom(16)
    probers = [Prober(LOOPBACK, "lo", nonce) for _ in range(2)]
    try:
        for own, other in (probers, probers[::-1]):
            own.aim({"other": (LOOPBACK, other.port)})
        ends = time.monotonic() + 10
        through = [False, False]
        while not all(through) and time.monotonic() < ends:
            through = [each.step(0.01) for each in probers]
        assert [1, 1] == [each.row()["equal"] for each in probers]
        assert interface_mtu("lo") == probers[0].row()["mtu"]
    finally:
        for each in probers:
            each.close()


def test_echo_answers_nobody_else_and_never_more_than_it_was_sent() -> None:
    """It must not be of use to whoever forges a sender."""
    prober = Prober(LOOPBACK, "lo", os.urandom(16))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.2)
            for packet in (b"", b"eaMTU1", b"eaMTU1" + bytes(2000), os.urandom(100)):
                stranger.sendto(packet, (LOOPBACK, prober.port))
            prober.step(0.05)
            with pytest.raises(TimeoutError):
                stranger.recv(100)
            stranger.sendto(b"eaMTU1" + prober.nonce + bytes(1000), (LOOPBACK, prober.port))
            prober.step(0.05)
            assert 28 == len(stranger.recv(2000))
    finally:
        prober.close()


def test_interface_that_is_not_there_has_no_mtu() -> None:
    """Nor has one of a name too long."""
    assert (0, 0) == (interface_mtu("nosuch0"), interface_mtu("x" * 40))


@pytest.mark.parametrize("count", [2, 3, 64, 65, 1000])
def test_every_two_nodes_are_joined_by_probed_ways(count: int) -> None:
    """And nobody probes more than a few dozen."""
    ways = {index: chosen_peers(index, count) for index in range(count)}
    assert max(map(len, ways.values())) <= 63
    assert all(index not in others for index, others in ways.items())
    reached, border = {0}, [0]
    while border:
        border = [other for index in border for other in ways[index] if other not in reached]
        reached.update(border)
    assert count == len(reached)
