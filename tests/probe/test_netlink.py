"""The kernel's own words about addresses, against what `ip` says of the same namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any, Dict, List, Tuple

import pytest

from envaudit.probe import netlink
from envaudit.probe.netlink import Address
from tests.conftest import PACKAGE_HOME

READ = """
import json
from envaudit.probe.context import Context
from envaudit.probe.sections import network
context = Context(environ={}, workdir="/", launch="local", interpreter={})
print(json.dumps(network.read(context)._asdict()))
"""


def ip(*arguments: str) -> List[Dict[str, Any]]:
    """What `ip -json` says; skips where it is not installed."""
    program = shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None:
        pytest.skip("ip is not installed")
    told: List[Dict[str, Any]] = json.loads(
        subprocess.check_output([program, "-json", *arguments], timeout=10)
    )
    return told


def test_names_and_indices_are_those_of_ip() -> None:
    """All interfaces, in the same order."""
    assert [(row["ifindex"], row["ifname"]) for row in ip("link")] == netlink.names()


def test_addresses_are_those_of_ip() -> None:
    """Family, address and prefix length; all of IPv4 come before all of IPv6."""
    expected: List[Tuple[int, Address]] = []
    for row in ip("addr"):
        for info in row["addr_info"]:
            if "local" in info:
                family = "ipv4" if info["family"] == "inet" else "ipv6"
                expected.append((row["ifindex"], Address(family, info["local"], info["prefixlen"])))
    told = netlink.addresses()
    assert sorted(expected) == sorted(told)
    families = [address.family for _, address in told]
    assert sorted(families) == families


@pytest.mark.parametrize(
    ("text", "link_local"),
    [("fe80::1", True), ("febf::1", True), ("fec0::1", False), ("fd00::1", False), ("::1", False)],
)
def test_link_local_is_fe80_with_ten_bits(text: str, link_local: bool) -> None:
    """fe80::/10, and no private or loopback address."""
    assert link_local is Address("ipv6", text, 64).is_link_local


def test_interface_of_another_namespace_is_not_taken_for_the_one_in_sysfs() -> None:
    """A container that sees the host's /sys: its own eth0 is no card, whatever /sys/class/net/eth0 is."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a network namespace takes root and unshare")
    ip("link")
    steps = ("link add eth0 type veth peer name peer0", "addr add 192.0.2.7/27 dev eth0", "link set eth0 up")
    inside = " && ".join([*(f"ip {step}" for step in steps), 'exec "$@"'])
    ran = subprocess.run(
        ["unshare", "--net", "sh", "-c", inside, "sh", sys.executable, "-B", "-c", READ],
        env={**os.environ, "PYTHONPATH": str(PACKAGE_HOME)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("this root may not make network namespaces")
    answer = json.loads(ran.stdout)
    each = {"prefixes": "ipv4/27"}
    assert {"virtual": {"none": {"count": 1, "each": each, "devices": {}}}} == answer["facts"]["interfaces"]
    first = answer["facts"]["selection"]["NCCL_SOCKET_IFNAME"]["first"]
    assert {"kind": "virtual", "driver": None, "speed_mbps": None} == first
