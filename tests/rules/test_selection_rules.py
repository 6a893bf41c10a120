"""EA470 to EA499: what settings resolve to, and the names by which nodes find each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, List

import pytest

from envaudit.model import Fingerprint
from envaudit.rules import Policy
from tests.rules.fleets import GONE, edited, findings, fleet, node_of, set_variable, told
from tests.rules.laidout import twin

SELECTION = "network/selection"


def test_selection_of_healthy_fleets_raises_nothing() -> None:
    """Interfaces and cards of other names."""
    for names in (("twin-a", "twin-b"), ("slurm-a", "slurm-b"), ("pod-a", "pod-b"), ("roce-h100",)):
        assert [] == told([node_of(name) for name in names]), names


@pytest.mark.parametrize(
    ("fixture", "name", "old", "new"),
    [
        ("slurm-a", "NCCL_SOCKET_IFNAME", '"NCCL_SOCKET_IFNAME": "ib0"', '"NCCL_SOCKET_IFNAME": "ens5"'),
        ("slurm-a", "GLOO_SOCKET_IFNAME", '"GLOO_SOCKET_IFNAME": "ib0"', '"GLOO_SOCKET_IFNAME": "eth9"'),
        ("slurm-a", "NCCL_IB_HCA", '"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"', '"NCCL_IB_HCA": "ionic"'),
        ("roce-h100", "UCX_NET_DEVICES", '"UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1"', '"UCX_NET_DEVICES": "x"'),
        ("slurm-a", "NCCL_SOCKET_IFNAME", '"NCCL_SOCKET_IFNAME": "ib0"', '"NCCL_SOCKET_IFNAME": "^e,i,lo"'),
    ],
)
def test_setting_that_names_nothing_is_an_error(
    tmp_path: Path, fixture: str, name: str, old: str, new: str
) -> None:
    """Read by the probe from a fake node whose variable was changed."""
    found = [each for each in findings([twin(tmp_path, fixture, {old: new})]) if each.rule == "EA470"]
    assert [("error", f"{SELECTION}/{name}")] == [(each.severity, each.path) for each in found]
    assert found[0].message.endswith("matches nothing")


def test_setting_that_leaves_the_loopback_alone_is_an_error(tmp_path: Path) -> None:
    """NCCL takes it, and the other nodes connect to themselves."""
    edits = {'"NCCL_SOCKET_IFNAME": "ib0"': '"NCCL_SOCKET_IFNAME": "^e,i"'}
    found = [each for each in findings([twin(tmp_path, "slurm-a", edits)]) if each.rule == "EA470"]
    assert ["NCCL_SOCKET_IFNAME=^e,i leaves nothing but the loopback"] == [each.message for each in found]


def test_space_at_the_end_of_a_name_is_seen(tmp_path: Path) -> None:
    """NCCL looks for an interface of that name, space included."""
    edits = {'"NCCL_SOCKET_IFNAME": "ib0"': '"NCCL_SOCKET_IFNAME": "ib0 "'}
    found = [each for each in findings([twin(tmp_path, "slurm-a", edits)]) if each.rule == "EA470"]
    assert ["NCCL_SOCKET_IFNAME='ib0 ' matches nothing"] == [each.message for each in found]


def test_setting_of_a_file_that_names_nothing_says_which() -> None:
    """And what is there to be named."""
    one = set_variable(node_of("slurm-a"), "NCCL_SOCKET_IFNAME", "ens5", "/etc/nccl.conf")
    (finding,) = findings([edited(one, f"{SELECTION}/NCCL_SOCKET_IFNAME/matched", 0)])
    assert "NCCL_SOCKET_IFNAME=ens5 matches nothing" == finding.message
    assert "set in /etc/nccl.conf" == finding.evidence[0]
    assert finding.evidence[1].startswith("here are ")


def test_setting_of_a_file_that_windows_wrote_says_so() -> None:
    """NCCL looks for an interface whose name ends with a carriage return."""
    one = set_variable(node_of("slurm-a"), "NCCL_SOCKET_IFNAME", "ib0\r", "/etc/nccl.conf")
    (finding,) = findings([edited(one, f"{SELECTION}/NCCL_SOCKET_IFNAME/matched", 0)])
    assert "NCCL_SOCKET_IFNAME='ib0\\r' matches nothing" == finding.message
    assert "its line ends with CR LF, and the CR is taken along" == finding.evidence[1]
    assert "dos2unix" in finding.hint


@pytest.mark.parametrize(
    "change",
    [
        (f"{SELECTION}/NCCL_IB_HCA", {"matched": 0, "models": {}, "disabled": True}),
        (f"{SELECTION}/NCCL_IB_HCA", GONE),
        ("env/nccl/NCCL_IB_HCA", GONE),
    ],
)
def test_hca_setting_without_a_question_raises_nothing(change: Any) -> None:
    """InfiniBand is switched off, there is no HCA, or NCCL chooses itself."""
    one = edited(node_of("slurm-a"), f"{SELECTION}/NCCL_IB_HCA/matched", 0)
    assert [] == told([edited(one, *change)])


def test_interface_that_one_node_lacks_is_one_error() -> None:
    """The setting is the same everywhere, and one node has no such interface."""
    *alike, odd = fleet("slurm-a")
    odd = edited(odd, f"{SELECTION}/NCCL_SOCKET_IFNAME/matched", 0)
    odd = edited(odd, f"{SELECTION}/NCCL_SOCKET_IFNAME/idle", ["ib0"])
    (finding,) = findings([*alike, odd])
    assert ("EA475", "error", ("n3",), "NCCL_SOCKET_IFNAME resolves to nothing") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )


def test_node_rule_speaks_where_the_difference_is_off() -> None:
    """What is wrong is not hidden by a policy about differences."""
    *alike, odd = fleet("slurm-a")
    odd = edited(odd, f"{SELECTION}/NCCL_SOCKET_IFNAME/matched", 0)
    assert [("EA470", "error", ("n3",))] == told([*alike, odd], Policy(levels={"EA475": "off"}))


def test_number_of_rails_that_differs_is_an_error_and_another_interface_a_warning() -> None:
    """Seven HCAs where the others take eight; a slower interface for the bootstrap."""
    *alike, odd = fleet("slurm-a")
    rails = edited(odd, f"{SELECTION}/NCCL_IB_HCA/matched", 1)
    slower = edited(odd, f"{SELECTION}/NCCL_SOCKET_IFNAME/each/speed_mbps", 1000)
    assert [("EA475", "error", ("n3",))] == told([*alike, rails])
    assert [("EA475", "warning", ("n3",))] == told([*alike, slower])


def test_hca_that_is_named_and_not_there_is_a_warning() -> None:
    """All nodes name a port that none has."""
    nodes = [edited(one, f"{SELECTION}/NCCL_IB_HCA/idle", ["mlx5_7:1"]) for one in fleet("slurm-a")]
    assert [("EA471", "warning", ("n1", "n2", "n3"))] == told(nodes)


def test_hca_that_is_there_and_is_not_found_for_the_end_of_its_line_is_told_so(tmp_path: Path) -> None:
    """The message names a card that is there: only the whole value shows what is behind its name."""
    edits = {'"NCCL_IB_HCA": "=mlx5_0:1,mlx5_1:1"': r'"NCCL_IB_HCA": "=mlx5_0,mlx5_1\r"'}
    (found,) = [each for each in findings([twin(tmp_path, "slurm-a", edits)]) if each.rule == "EA471"]
    assert r"NCCL_IB_HCA='=mlx5_0,mlx5_1\r'" == found.evidence[0]
    assert "dos2unix" in found.hint


@pytest.mark.parametrize(
    ("named", "taken", "trapped"),
    [
        (["eth1"], ["eth1", "eth10"], "eth1 also takes eth10"),
        (["eth1", "eth10"], ["eth1", "eth10"], None),
        ([], ["eth0", "eth1"], None),
        (["eth1"], ["eth1", "ib0"], None),
    ],
)
def test_name_that_is_the_beginning_of_another(named: List[str], taken: List[str], trapped: Any) -> None:
    """`eth` was meant to take all of them; eth1 hardly meant eth10."""
    one = set_variable(node_of("slurm-a"), "NCCL_SOCKET_IFNAME", "eth1")
    one = edited(one, f"{SELECTION}/NCCL_SOCKET_IFNAME/named", named)
    one = edited(one, f"{SELECTION}/NCCL_SOCKET_IFNAME/names", taken, notes=True)
    found = findings([one])
    assert ([] if trapped is None else [f"NCCL_SOCKET_IFNAME=eth1: {trapped}"]) == [
        each.message for each in found
    ]
    if found:
        assert ("EA472", "warning") == (found[0].rule, found[0].severity)
        assert "NCCL_SOCKET_IFNAME==eth1" in found[0].hint


def loopback(name: str, launch: str = "ssh", gloo: str = "", master: str = "") -> Fingerprint:
    """A pod's node whose name stands at 127.0.1.1."""
    one = edited(node_of("pod-a", name), "host/own_name", "loopback")
    one = edited(one, "host/launch", launch)
    variables = {"MASTER_ADDR": master} if master else {}
    env = replace(one.sections["env"], notes={**one.sections["env"].notes, "variables": variables})
    one = replace(one, sections={**one.sections, "env": env})
    return edited(one, "env/variables/GLOO_SOCKET_IFNAME", gloo) if gloo else one


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([loopback("n1"), loopback("n2")], [("EA473", "error", ("n1", "n2"))]),
        ([loopback("n1"), Fingerprint("freeze", "import", "", "", {})], []),
        ([loopback("n1", "slurm")], [("EA473", "error", ("n1",))]),
        ([loopback("n1", "exec")], [("EA473", "error", ("n1",))]),
        ([loopback("n1", "inband", master="node01")], [("EA473", "error", ("n1",))]),
        ([loopback("n1", "inband", master="127.0.0.1")], []),
        ([loopback("n1", "inband")], []),
        ([loopback("n1", "ssh")], []),
        ([loopback("n1", "slurm", gloo="eth0")], []),
        ([loopback("n1", "local"), Fingerprint("", "lock", "", "", {})], []),
        ([edited(loopback("n1", "slurm"), "host/own_name", None)], []),
        ([edited(loopback("n1", "slurm"), "host/own_name", "nothing")], []),
    ],
)
def test_own_name_at_the_loopback(nodes: List[Fingerprint], expected: Any) -> None:
    """On a launch over several nodes, without a variable that settles it."""
    assert expected == told(nodes)


def test_own_name_that_differs_is_one_finding_and_an_error_at_the_loopback() -> None:
    """The others are right: the difference tells it, once."""
    alike = fleet("pod-a", 2)
    assert [("EA474", "error", ("n3",))] == told([*alike, loopback("n3", "exec")])
    nothing = edited(node_of("pod-a", "n3"), "host/own_name", "nothing")
    assert [("EA474", "warning", ("n3",))] == told([*alike, nothing])


@pytest.mark.parametrize(
    ("jobs", "masters", "fires"),
    [
        (("7", "7"), ("10.0.0.1", "10.0.0.2"), True),
        (("7", "7"), ("10.0.0.1", "10.0.0.1"), False),
        (("7", "8"), ("10.0.0.1", "10.0.0.2"), False),
        ((None, None), ("10.0.0.1", "10.0.0.2"), False),
    ],
)
def test_master_address_within_one_job(jobs: Any, masters: Any, fires: bool) -> None:
    """Nodes of two jobs have two masters; of one job they have one."""
    nodes = []
    for one, job, master in zip(fleet("pod-a", 2), jobs, masters):
        one = edited(one, "env/variables/SLURM_JOB_ID", job, notes=True)
        nodes.append(edited(one, "env/variables/MASTER_ADDR", master, notes=True))
    assert ([("EA476", "error", ("n1", "n2"))] if fires else []) == told(nodes)
