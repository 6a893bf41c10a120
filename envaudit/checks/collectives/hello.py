"""What a node says of itself before torch is imported, from what other sections read without importing it.

Facts, each null where it is not known, which then is not compared:

    tool, python, torch, torch_git, cuda, hip, nccl, cudnn, driver    versions
    gpus         [{"uuid", "model"}, ...] in torch's order
    interface    {"name", "address"} that ranks will meet over
    busy         by the caller: who works on a GPU that a rank would take; then nothing is launched
"""

from __future__ import annotations

import socket
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from envaudit._version import __version__
from envaudit.checks.cards import Card
from envaudit.control.listening import NoAddress, addresses_of

# The sections that it is made of.
SECTIONS = ("gpu", "libraries", "network", "python", "torch")

# How long a name may take to be resolved before it is given up here; joining has a time of its own.
_LOOK_UP_S = 5.0

# A section's facts and notes; empty where it could not be read.
Read = Callable[[str], Tuple[Mapping[str, Any], Mapping[str, Any]]]


def hello_of(
    read: Read, environ: Mapping[str, str], cards: Sequence[Card], hub: Tuple[str, int]
) -> Dict[str, Any]:
    """The facts of this node.

    Args:
        read: gives a section of SECTIONS.
        environ: of the audited work, where interfaces are chosen.
        cards: those that torch will see, in its order.
        hub: where the run meets.
    """
    torch, libraries = read("torch")[0], read("libraries")[0]
    return {
        "tool": __version__,
        "python": _text(read("python")[0].get("version")),
        "torch": _text(torch.get("version")),
        "torch_git": _text(torch.get("git_version")),
        "cuda": _text(torch.get("cuda")),
        "hip": _text(torch.get("hip")),
        "nccl": _version(libraries, "nccl"),
        "cudnn": _version(libraries, "cudnn"),
        "driver": _text(read("gpu")[0].get("driver")),
        "gpus": [{"uuid": card.uuid or None, "model": card.model or None} for card in cards],
        "interface": interface_of(read("network")[1], environ, hub, on_gpu=bool(cards)),
    }


def interface_of(
    network: Mapping[str, Any], environ: Mapping[str, str], hub: Tuple[str, int], *, on_gpu: bool
) -> Dict[str, Optional[str]]:
    """The interface that the variables name, else the one by which this node reaches the hub.

    Args:
        network: the notes of section network.
        environ: with the variables.
        hub: host and port.
        on_gpu: whether NCCL chooses, or gloo.
    """
    variable = "NCCL_SOCKET_IFNAME" if on_gpu else "GLOO_SOCKET_IFNAME"
    names = _map(_map(network, "selection"), variable).get("names")
    if environ.get(variable):
        if not isinstance(names, list) or not names:
            # It resolves to nothing here: the name alone says so.
            return {"name": environ[variable].split(",")[0][:64], "address": None}
        return {"name": str(names[0]), "address": _address(network, str(names[0]))}
    address = own_address(*hub)
    if on_gpu and _is_own(address) and not _is_own(hub[0]):
        # The first node's own name is 127.0.1.1 in many an /etc/hosts. gloo goes by that, NCCL does not.
        name = str(names[0]) if isinstance(names, list) and names else ""
        address = _address(network, name)
        return {"name": name if address else None, "address": address}
    return {"name": _owner(network, address), "address": address}


def _is_own(host: Optional[str]) -> bool:
    return host is not None and (host.startswith("127.") or host in ("::1", "localhost"))


def own_address(host: str, port: int) -> Optional[str]:
    """The address of this node on the way to a host; None where there is no way, or no such host."""
    try:
        found = addresses_of(host, port, _LOOK_UP_S)
    except NoAddress:
        return None
    for each in found:
        with socket.socket(each.family, socket.SOCK_DGRAM) as trial:
            try:
                # Nothing is sent: the kernel only looks for the way.
                trial.connect(each.sockaddr)
                return str(trial.getsockname()[0])
            except OSError:
                continue
    return None


def _address(network: Mapping[str, Any], name: str) -> Optional[str]:
    if name == "lo":
        return "127.0.0.1"
    found = _addresses(network, name)
    # IPv4 first, as gloo and NCCL find it; a link-local address is of no use beyond the wire.
    ordered = sorted(found, key=lambda each: (":" in each, each.startswith("fe80")))
    return ordered[0] if ordered else None


def _owner(network: Mapping[str, Any], address: Optional[str]) -> Optional[str]:
    if address is None:
        return None
    if _is_own(address):
        return "lo"
    names = [name for name in _map(network, "interfaces") if address in _addresses(network, name)]
    return names[0] if names else None


def _addresses(network: Mapping[str, Any], name: str) -> List[str]:
    listed = _map(_map(network, "interfaces"), name).get("addresses")
    return [str(each).partition("/")[0] for each in listed] if isinstance(listed, list) else []


def _version(libraries: Mapping[str, Any], name: str) -> Optional[str]:
    return _text(_map(libraries, name).get("version"))


def _map(table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> Optional[str]:
    return value[:200] if isinstance(value, str) else None
