"""What a node says of itself before torch is imported."""

from __future__ import annotations

from typing import Any, Mapping, Tuple

import pytest

from envaudit._version import __version__
from envaudit.checks.cards import Card
from envaudit.checks.collectives import hello
from envaudit.checks.collectives.hello import hello_of, interface_of, own_address

NETWORK = {
    "interfaces": {
        "eth0": {"addresses": ["10.0.0.7/16", "fe80::7/64"]},
        "ib0": {"addresses": ["10.9.0.7/16"]},
    },
    "selection": {
        "NCCL_SOCKET_IFNAME": {"names": ["ib0", "eth0"]},
        "GLOO_SOCKET_IFNAME": {"names": ["eth0"]},
    },
}
SECTIONS = {
    "python": ({"version": "3.11.7"}, {}),
    "torch": ({"version": "2.13.0+cu130", "git_version": "abc", "cuda": "13.0", "hip": None}, {}),
    "libraries": ({"nccl": {"version": "2.27.5"}, "cudnn": {"version": None}}, {}),
    "gpu": ({"driver": "580.95.05"}, {}),
    "network": ({}, NETWORK),
}
HUB = ("127.0.0.1", 29501)


def test_facts_are_those_that_sections_have_read() -> None:
    """Null is what is not known."""
    cards = [Card(None, "GPU-1", "00000000:19:00.0", "NVIDIA H200")]
    assert {
        "tool": __version__,
        "python": "3.11.7",
        "torch": "2.13.0+cu130",
        "torch_git": "abc",
        "cuda": "13.0",
        "hip": None,
        "nccl": "2.27.5",
        "cudnn": None,
        "driver": "580.95.05",
        "gpus": [{"uuid": "GPU-1", "model": "NVIDIA H200"}],
        "interface": {"name": "lo", "address": "127.0.0.1"},
    } == hello_of(lambda name: SECTIONS[name], {}, cards, HUB)


def test_sections_that_could_not_be_read_are_not_known() -> None:
    """And nothing is raised."""

    def nothing(name: str) -> Tuple[Mapping[str, Any], Mapping[str, Any]]:
        return {}, {}

    said = hello_of(nothing, {}, (), HUB)
    assert {"tool", "interface", "gpus"} == {name for name, value in said.items() if value is not None}


@pytest.mark.parametrize(
    ("environ", "on_gpu", "expected"),
    [
        ({"NCCL_SOCKET_IFNAME": "ib"}, True, {"name": "ib0", "address": "10.9.0.7"}),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, False, {"name": "eth0", "address": "10.0.0.7"}),
        ({"NCCL_SOCKET_IFNAME": "ib"}, False, {"name": "lo", "address": "127.0.0.1"}),
    ],
)
def test_interface_is_the_one_that_the_library_s_variable_names(
    environ: Mapping[str, str], on_gpu: bool, expected: Mapping[str, str]
) -> None:
    """Else the one by which the node reaches the hub."""
    assert expected == interface_of(NETWORK, environ, HUB, on_gpu=on_gpu)


@pytest.mark.parametrize(
    ("network", "on_gpu", "expected"),
    [
        (NETWORK, True, {"name": "ib0", "address": "10.9.0.7"}),
        ({}, True, {"name": None, "address": None}),
        (NETWORK, False, {"name": "lo", "address": "127.0.1.1"}),
    ],
)
def test_first_node_whose_name_is_127_0_1_1_takes_what_nccl_takes(
    monkeypatch: pytest.MonkeyPatch, network: Mapping[str, Any], on_gpu: bool, expected: Mapping[str, Any]
) -> None:
    """As Debian writes it into /etc/hosts: NCCL is not misled by it, gloo is."""
    monkeypatch.setattr(hello, "own_address", lambda host, port: "127.0.1.1")
    assert expected == interface_of(network, {}, ("node01", 29501), on_gpu=on_gpu)


def test_variable_that_names_nothing_here_is_told_without_an_address() -> None:
    """A rank there would fail, and the name says why."""
    found = interface_of({}, {"GLOO_SOCKET_IFNAME": "eth9"}, HUB, on_gpu=False)
    assert {"name": "eth9", "address": None} == found


def test_own_address_on_the_way_to_no_host_is_not_known() -> None:
    """The loopback's own is known without a network."""
    assert "127.0.0.1" == own_address("127.0.0.1", 1)
    assert None is own_address("256.256.256.256", 1)
