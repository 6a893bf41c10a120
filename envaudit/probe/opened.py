"""Libraries that nothing of torch needs when it is loaded: they are opened by their names later.

NCCL opens its network plugin, which needs libfabric or UCX; a launcher's bindings open MPI.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence

from envaudit.probe import ncclsettings
from envaudit.probe.context import Context
from envaudit.probe.families import BY_NAME, Family, family_of
from envaudit.probe.loader import LoaderRules, Taken

# By soname: Open MPI 3 to 5, MPICH and those of its interface (Intel MPI, MVAPICH); UCX; libfabric.
SONAMES = {
    "mpi": ("libmpi.so.40", "libmpi.so.12"),
    "ucx": ("libucp.so.0",),
    "libfabric": ("libfabric.so.1",),
}
# How the loader finds what lies in the system's own folders.
_OF_ALL = ("ld.so.cache", "default")


def opened(
    context: Context, rules: LoaderRules, taken: Sequence[Family], nccl_askers: Sequence[str], *, rccl: bool
) -> Dict[Family, Taken]:
    """The copies that are opened by name, of the families that torch does not load itself.

    Args:
        context: the node.
        rules: the loader's rules.
        taken: the families that are loaded with torch.
        nccl_askers: the library that NCCL is in, and who loaded it; empty without NCCL.
        rccl: whether it is AMD's.
    """
    found: Dict[Family, Taken] = {}
    if nccl_askers:
        for name in _plugin_names(context, rccl=rccl):
            plugin = rules.find(name, nccl_askers)
            if plugin:
                via = "NCCL_NET_PLUGIN" if "/" in name else plugin.via
                found[BY_NAME["nccl_net"]] = Taken(plugin.path, via)
                for needed in rules.needs(plugin.path):
                    family = family_of(needed)
                    copy = rules.find(needed, [plugin.path, *nccl_askers]) if family else None
                    if family and copy and family not in taken:
                        found.setdefault(family, copy)
                break
    for key, sonames in SONAMES.items():
        copies = list(filter(None, (rules.find(soname, []) for soname in sonames)))
        if copies and BY_NAME[key] not in taken and BY_NAME[key] not in found:
            # An MPI that somebody has chosen comes before the one that every user of the machine has.
            found[BY_NAME[key]] = next((copy for copy in copies if copy.via not in _OF_ALL), copies[0])
    return found


def _plugin_names(context: Context, *, rccl: bool) -> Iterator[str]:
    """What NCCL tries to open, in its order (`openNetPluginLib` in its src/plugin/plugin_open.cc).

    NCCL_NET_PLUGIN names a library or the end of its name, several since 2.28 with commas; nothing
    else is tried then. RCCL has plugins of its own name first.
    """
    value, _ = ncclsettings.in_effect(context)[0].get("NCCL_NET_PLUGIN", ("", ""))
    kinds: List[str] = ["librccl-net", "libnccl-net"] if rccl else ["libnccl-net"]
    if value.lower() == "none":
        return
    if not value:
        yield from (f"{kind}.so" for kind in kinds)
    for name in filter(None, value.split(",")):
        yield name
        if "/" not in name:
            yield from (f"{kind}-{name}.so" for kind in kinds)
