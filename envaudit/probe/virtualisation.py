"""What the machine is made of: a hypervisor's guest or metal, and the kind of container around it."""

from __future__ import annotations

from typing import Optional

from envaudit.probe.context import Context
from envaudit.probe.processors import hypervisor_flag

# The vendor of the DMI table → the kind, as systemd-detect-virt(1) names them; first match wins.
_VENDORS = (
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Google", "google"),
    ("Microsoft Corporation", "microsoft"),
    ("VMware", "vmware"),
    ("innotek GmbH", "oracle"),
    ("Xen", "xen"),
)
_CONTAINERS = ("kubepods", "docker", "libpod", "lxc", "containerd", "garden")


def virtualisation_kind(context: Context) -> Optional[str]:
    """`none`, `wsl`, a kind of `_VENDORS`, `vm` where only the processor tells; None where nothing does."""
    if "microsoft" in (context.peek("/proc/sys/kernel/osrelease") or "").lower():
        return "wsl"
    flag = hypervisor_flag(context)
    if flag is False:
        return "none"
    texts = [context.peek(f"/sys/class/dmi/id/{name}") or "" for name in ("sys_vendor", "product_name")]
    for text in texts:
        for vendor, kind in _VENDORS:
            if vendor in text:
                return kind
    if context.peek("/sys/hypervisor/type") == "xen":
        return "xen"
    if flag:
        return "vm"
    return "none" if any(texts) else None


def container_kind(context: Context) -> str:
    """`none`, `kubernetes`, `docker`, `podman`, `apptainer`, or what the container says of itself."""
    environ = context.environ
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "kubernetes"
    if (
        "APPTAINER_CONTAINER" in environ
        or "SINGULARITY_CONTAINER" in environ
        or context.exists("/.singularity.d")
    ):
        return "apptainer"
    if context.exists("/run/.containerenv"):
        return "podman"
    if context.exists("/.dockerenv"):
        return "docker"
    told = context.peek("/run/systemd/container") or environ.get("container", "")
    if told:
        return told[:64]
    groups = context.peek("/proc/1/cgroup") or ""
    for name in _CONTAINERS:
        if name in groups:
            return "kubernetes" if name == "kubepods" else name
    return "none"
