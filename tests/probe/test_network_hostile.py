"""Whatever stands in /sys and in the variables: the network section answers within the law of facts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Dict, List

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from envaudit.probe.answer import row_of
from envaudit.probe.context import Context
from envaudit.probe.sections import network

INTERFACE = (
    "ifindex mtu speed operstate flags type uevent address bonding/slaves bonding/mode master dev_port"
)
PORT = (
    "state phys_state rate link_layer gids/0 gids/1 gid_attrs/types/1 gid_attrs/ndevs/0 counters/link_downed"
)
FILES = [
    *(f"sys/class/net/{name}/{file}" for name in ("lo", "eth0", "bond0") for file in INTERFACE.split()),
    *(f"sys/class/net/bond0/lower_{name}" for name in ("eth0", "bond0", "..")),
    *("sys/class/net/eth0/device/driver", "sys/class/net/eth0/device/physfn/vendor"),
    *(f"sys/class/infiniband/mlx5_0/{file}" for file in ("hca_type", "fw_ver", "board_id", "node_guid")),
    *(f"sys/class/infiniband/mlx5_0/ports/1/{file}" for file in PORT.split()),
    *("proc/net/route", "usr/bin/ofed_info", "etc/nccl.conf", "sys/module/mlx5_ib/version"),
]
LIKELY = [
    *(
        "4: ACTIVE",
        "Ethernet",
        "InfiniBand",
        "up",
        "32",
        "DEVTYPE=bond",
        "DEVTYPE=vlan",
        "eth0 bond0",
        "9000",
    ),
    *("0000:0000:0000:0000:0000:ffff:0a00:0001", "fe80:" * 8, "RoCE v2", "../../..", "NCCL_IB_HCA=^", "-1"),
    *("Iface\tDestination\neth0 00000000 0102ZZ04", "MLNX_OFED_LINUX-23.10-", "\u202e\x1b[31m", "9" * 5000),
]
contents = st.one_of(st.sampled_from(LIKELY).map(str.encode), st.binary(max_size=64))
NAMES = [
    *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_COMM_ID", "NCCL_IB_ADDR_RANGE"),
    *("GLOO_SOCKET_IFNAME", "UCX_NET_DEVICES"),
]
values = st.one_of(st.sampled_from(["eth0", "^lo", "=mlx5_0:1", "1", "[::1]:5"]), st.text(max_size=12))
ADDRESSES: List[Dict[str, List[str]]] = [{}, {"eth0": ["10.0.0.1/24", "fe80::1/64"], "lo": ["::1/128"]}]


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    files=st.dictionaries(st.sampled_from(FILES), contents, max_size=30),
    environ=st.dictionaries(st.sampled_from(NAMES), values),
    addresses=st.sampled_from([None, *ADDRESSES]),
)
def test_network_of_any_content_keeps_the_law_of_facts(
    files: Dict[str, bytes], environ: Dict[str, str], addresses: object
) -> None:
    """No exception, no float, nothing too deep or too long, and no control character in a fact."""
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            place = Path(folder, path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        node = {} if addresses is None else {"addresses": addresses}
        context = Context(root=folder, environ=environ, workdir="/", launch="ssh", interpreter={}, node=node)
        answer = network.read(context)
    row = row_of("network", network.SCHEMA, answer)
    assert answer.status in ("ok", "absent", "partial")
    assert [] == [text for text in texts(row["facts"]) if not text.isprintable()]


def texts(value: object) -> List[str]:
    """All keys and texts below a value."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in [key, *texts(item)]]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []
