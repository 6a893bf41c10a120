"""EA450 to EA469: settings of NCCL, UCX, Gloo and torch that differ."""

from __future__ import annotations

from typing import Any, List

import pytest

from envaudit.model import Fingerprint
from envaudit.rules.nccl import SHAPING
from tests.rules.fleets import GONE, edited, findings, fleet, set_variable, told


def settings(*values: Any, name: str = "NCCL_ALGO") -> List[Fingerprint]:
    """One node for each value of a setting; None where it is not set."""
    return [
        edited(node, f"env/nccl/{name}", GONE) if value is None else set_variable(node, name, value)
        for node, value in zip(fleet("slurm-a", len(values)), values)
    ]


def test_settings_that_are_alike_raise_nothing() -> None:
    """The same everywhere, whatever it is."""
    assert [] == told(settings("Ring", "Ring", "Ring"))


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("NCCL_ALGO", "error"),
        ("NCCL_PROTO", "error"),
        ("NCCL_IB_DISABLE", "error"),
        ("NCCL_P2P_LEVEL", "error"),
        ("NCCL_BUFFSIZE", "error"),
        ("NCCL_NVLS_ENABLE", "error"),
        ("NCCL_IB_TIMEOUT", "warning"),
        ("NCCL_SET_THREAD_NAME", "warning"),
        ("NCCL_DEBUG", "info"),
        ("NCCL_DEBUG_SUBSYS", "info"),
        ("NCCL_VERSION", "info"),
    ],
)
def test_setting_of_nccl_that_one_node_has_otherwise(name: str, severity: str) -> None:
    """What shapes the transport breaks jobs; what talks more breaks none."""
    (finding,) = findings(settings("1", "1", "2", name=name))
    rule = "EA451" if severity == "error" else "EA452"
    assert (rule, severity, ("n3",), f"{name} differs") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )
    # The row shows the values already.
    assert [] == [line for line in finding.evidence if name in line]


@pytest.mark.parametrize(
    ("name", "rule", "severity"),
    [
        ("UCX_TLS", "EA451", "error"),
        ("GLOO_DEVICE_TRANSPORT", "EA451", "error"),
        ("FI_PROVIDER", "EA451", "error"),
        ("UCX_RNDV_THRESH", "EA452", "warning"),
        ("UCX_LOG_LEVEL", "EA452", "info"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "EA452", "warning"),
        ("TORCH_DISTRIBUTED_DEBUG", "EA453", "error"),
        ("TORCH_NCCL_USE_COMM_NONBLOCKING", "EA453", "error"),
        ("CUDA_LAUNCH_BLOCKING", "EA299", "warning"),
        ("OMP_NUM_THREADS", "EA299", "warning"),
        ("CONDA_DEFAULT_ENV", "EA299", "info"),
    ],
)
def test_variable_that_one_node_has_otherwise(name: str, rule: str, severity: str) -> None:
    """Of other libraries, by the same measure."""
    nodes = [edited(node, f"env/variables/{name}", "1") for node in fleet("slurm-a")]
    odd = edited(nodes[2], f"env/variables/{name}", "2")
    assert [(rule, severity, ("n3",))] == told([*nodes[:2], odd])


def test_several_settings_of_one_node_are_one_finding() -> None:
    """A launch script that was changed on one node."""
    *alike, odd = fleet("slurm-a")
    odd = set_variable(set_variable(odd, "NCCL_ALGO", "Tree"), "NCCL_PROTO", "Simple")
    (finding,) = findings([*alike, odd])
    assert ("2 settings of the transport differ", "n3: NCCL_ALGO=Tree; NCCL_PROTO=Simple") == (
        finding.message,
        finding.evidence[0],
    )


@pytest.mark.parametrize(("name", "severity"), [("NCCL_ALGO", "error"), ("NCCL_IB_TIMEOUT", "warning")])
def test_settings_file_that_one_node_alone_has(name: str, severity: str) -> None:
    """Its origin is named, and what it sets."""
    *alike, odd = fleet("slurm-a")
    (finding,) = findings([*alike, set_variable(odd, name, "7", "/etc/nccl.conf")])
    assert ("EA450", severity, ("n3",), "settings from /etc/nccl.conf are on some nodes only") == (
        finding.rule,
        finding.severity,
        finding.nodes,
        finding.message,
    )
    assert (f"n3: {name}=7 (/etc/nccl.conf)",) == finding.evidence


def test_settings_file_that_one_node_lacks_is_said_of_that_node() -> None:
    """The majority has it."""
    *alike, odd = fleet("healthy-h100")
    odd = edited(edited(odd, "env/nccl/NCCL_IB_HCA", GONE), "env/nccl_files", ["~/.nccl.conf"], notes=True)
    (finding,) = findings([*alike, odd])
    assert ("EA450", ("n3",), ("n3: no /etc/nccl.conf",)) == (finding.rule, finding.nodes, finding.evidence)


def test_same_value_from_another_place_is_told_only() -> None:
    """The next change is made in one place alone."""
    nodes = [set_variable(node, "NCCL_ALGO", "Ring") for node in fleet("slurm-a")]
    odd = set_variable(nodes[2], "NCCL_ALGO", "Ring", "/etc/nccl.conf")
    assert [("EA454", "info", ("n3",))] == told([*nodes[:2], odd])


def test_other_names_that_resolve_to_the_same_are_told_only() -> None:
    """The cards have other names there, and are the same two."""
    nodes = settings("=mlx5_0:1,mlx5_1:1", "=mlx5_0:1,mlx5_1:1", "=mlx5_2:1,mlx5_3:1", name="NCCL_IB_HCA")
    odd = edited(nodes[2], "network/selection/NCCL_IB_HCA/named", ["mlx5_2", "mlx5_3"])
    (finding,) = findings([*nodes[:2], odd])
    assert ("EA451", "info", "NCCL_IB_HCA differs, and resolves to the same") == (
        finding.rule,
        finding.severity,
        finding.message,
    )
    assert ["network/selection/NCCL_IB_HCA/named"] == [drift.path for drift in finding.following]


@pytest.mark.parametrize(
    "changes",
    [
        [("matched", 1), ("models", {"MT4123 InfiniBand": 1})],
        [("matched", 0), ("models", {})],
        [("idle", ["mlx5_9"])],
    ],
)
def test_other_names_that_resolve_to_less_are_an_error(changes: Any) -> None:
    """One finding: the selection follows from the setting."""
    nodes = settings("=mlx5_0:1,mlx5_1:1", "=mlx5_0:1,mlx5_1:1", "=mlx5_9", name="NCCL_IB_HCA")
    odd = nodes[2]
    for key, value in changes:
        odd = edited(odd, f"network/selection/NCCL_IB_HCA/{key}", value)
    assert [("EA451", "error", ("n3",))] == told([*nodes[:2], odd])


def test_setting_that_matches_nothing_is_said_beside_it() -> None:
    """The variable differs, and names nothing: one finding with both."""
    nodes = settings("ib0", "ib0", "ens5", name="NCCL_SOCKET_IFNAME")
    odd = edited(nodes[2], "network/selection/NCCL_SOCKET_IFNAME/matched", 0)
    (finding,) = findings([*nodes[:2], odd])
    assert ("EA451", "error", "n3: NCCL_SOCKET_IFNAME=ens5, which matches nothing") == (
        finding.rule,
        finding.severity,
        finding.evidence[0],
    )


def test_selection_that_was_not_seen_makes_no_setting_milder() -> None:
    """Without the section nobody knows what a name resolves to."""
    nodes = settings("=mlx5_0", "=mlx5_0", "=mlx5_1", name="NCCL_IB_HCA")
    blind = [edited(node, "network/selection", {}) for node in nodes]
    assert [("EA451", "error", ("n3",))] == told(blind)


@pytest.mark.parametrize("reason", SHAPING)
def test_list_of_shaping_settings_has_its_reasons(reason: str) -> None:
    """A whole sentence, and no name twice."""
    names = [name for every in SHAPING.values() for name in every]
    assert reason.endswith(".")
    assert len(set(names)) == len(names)
