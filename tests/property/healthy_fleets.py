"""Fleets that are well: any number of alike nodes, of any shape that people train on.

PROVENANCE: facts made by hand after what the probe reads of the fake nodes of fixtures/nodes; which
CUDA, NCCL, cuDNN and glibc belong to a torch is the table of `envaudit.rules.compatibility`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from hypothesis import strategies as st

from envaudit.model import Fingerprint, Section
from envaudit.rules.compatibility import TORCH_DEFAULTS, numbers

CAPTURED_AT = "2026-11-30T10:00:00Z"
GIB = 1 << 30


class Card(NamedTuple):
    """A model of GPU, and the oldest CUDA whose builds of torch have code for it."""

    product: str
    capability: str
    memory_gib: int
    cuda: str = "11.7"
    nvlinks: int = 0
    fabric: bool = False


CARDS = (
    Card("NVIDIA A100-SXM4-80GB", "8.0", 80, nvlinks=12),
    Card("NVIDIA H100 80GB HBM3", "9.0", 80, "12.1", 18, True),
    Card("NVIDIA B200", "10.0", 180, "12.8", 18, True),
    Card("NVIDIA L40S", "8.9", 45),
    Card("NVIDIA GeForce RTX 4090", "8.9", 24),
    Card("Tesla T4", "7.5", 15),
)
# A driver, and the newest CUDA that it runs.
DRIVERS = {"535.183.06": "12.2", "550.54.15": "12.4", "570.124.06": "12.8", "580.95.05": "13.0"}
ARCHITECTURES = {
    "11": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86"],
    "12": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    "13": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"],
}
SETTINGS = {
    "NCCL_DEBUG": "WARN",
    "NCCL_ALGO": "Ring",
    "NCCL_IB_TIMEOUT": "22",
    "NCCL_P2P_LEVEL": "NVL",
}
PACKAGES = st.dictionaries(
    st.sampled_from(["numpy", "transformers", "deepspeed", "ray", "einops", "pyyaml", "regex"]),
    st.sampled_from(["1.26.4", "2.3.1", "4.44.0", "6.0.2"]),
)


class Shape(NamedTuple):
    """What is drawn of a fleet before its facts are written down."""

    launch: str
    container: str
    manager: str
    torch: Optional[str]
    card: Card
    gpus: int
    driver: str
    fabric: str
    rails: int
    packages: Dict[str, str]
    settings: Tuple[str, ...]

    @property
    def contained(self) -> bool:
        """Whether the work runs in a container."""
        return self.container != "none"

    @property
    def cuda(self) -> Optional[str]:
        """The CUDA that torch was built for."""
        return TORCH_DEFAULTS[self.torch].cuda if self.torch and self.gpus else None


@st.composite
def shapes(draw: Any) -> Shape:
    """Hardware, container, environment and launch that go together."""
    torch = draw(st.none() | st.sampled_from([release for release in TORCH_DEFAULTS if release > "2.1"]))
    gpus = draw(st.integers(0, 16))
    needed = numbers(TORCH_DEFAULTS[torch].cuda) if torch else (12, 1)
    cards = [card for card in CARDS if numbers(card.cuda) <= needed and "10.0" != card.capability]
    if needed >= (12, 8):
        cards = [*cards, CARDS[2]]
    card = draw(st.sampled_from(cards))
    drivers = [driver for driver, cuda in DRIVERS.items() if numbers(cuda) >= needed]
    if card.capability == "10.0":
        drivers = [driver for driver in drivers if driver >= "570"]
    return Shape(
        launch=draw(st.sampled_from(["local", "ssh", "slurm", "exec", "inband"])),
        container=draw(st.sampled_from(["none", "docker", "kubernetes", "apptainer"])),
        manager=draw(st.sampled_from(["conda", "pip"])),
        torch=torch,
        card=card,
        gpus=gpus,
        driver=draw(st.sampled_from(drivers)),
        fabric=draw(st.sampled_from(["none", "ethernet", "InfiniBand", "RoCE"])),
        rails=draw(st.sampled_from([1, 2, 4, 8])),
        packages=draw(PACKAGES),
        settings=tuple(draw(st.lists(st.sampled_from(sorted(SETTINGS)), unique=True))),
    )


class Fleet(NamedTuple):
    """So many alike nodes of one shape, each with notes of its own."""

    shape: Shape
    size: int

    @property
    def nodes(self) -> List[Fingerprint]:
        """Their fingerprints."""
        return [node_of(self.shape, f"node{index:02d}", index) for index in range(1, self.size + 1)]


def fleets(at_least: int = 1) -> st.SearchStrategy[Fleet]:
    """Fleets of up to six nodes."""
    return st.builds(Fleet, shapes(), st.integers(at_least, 6))


def node_of(shape: Shape, name: str, index: int) -> Fingerprint:
    """One node of a shape; `index` is what differs by nature."""
    sections = {
        "clock": _clock(shape, index),
        "conda": _conda(shape),
        "cuda": _cuda(shape),
        "env": _ok("env", {"variables": {"OMP_NUM_THREADS": "8"}, "nccl": _nccl_settings(shape)}),
        "git": Section("git", 1, "absent"),
        "gpu": _gpu(shape, index),
        "host": _host(shape, index),
        "libraries": _libraries(shape),
        "limits": _limits(shape, index),
        "network": _network(shape, index),
        "packages": _ok("packages", {"distributions": _distributions(shape), "duplicates": {}}),
        "python": _python(shape),
        "storage": _storage(shape, index),
        "topology": _topology(shape),
        "torch": _torch(shape),
    }
    return Fingerprint(name, "probe", CAPTURED_AT, "0.1.0", sections)


def renamed(node: Fingerprint, name: str) -> Fingerprint:
    """The same node under another name."""
    return replace(node, node=name)


def _ok(name: str, facts: Dict[str, Any], **notes: Any) -> Section:
    return Section(name, 1, "ok", facts, notes)


def _clock(shape: Shape, index: int) -> Section:
    if shape.contained:
        return _ok("clock", {"service": None, "synchronised": True, "leap": "normal"})
    facts = {"service": "chrony", "synchronised": True, "leap": "normal"}
    against = {"run": "r1", "offset_ns": 40_000 * index, "bound_ns": 200_000}
    return _ok("clock", facts, offset_ns=1000 + index, against_controller=against)


def _conda(shape: Shape) -> Section:
    if shape.manager == "pip":
        return Section("conda", 1, "absent")
    rows = {
        "python": ("3.11.8", "hab00c5b_0_cpython"),
        **{n: (v, "py311_0") for n, v in shape.packages.items()},
    }
    if shape.torch:
        rows["pytorch"] = (
            shape.torch,
            f"{'cuda' + shape.cuda.replace('.', '') if shape.cuda else 'cpu'}_py311_0",
        )
    packages = {
        name: {"version": version, "build": build, "channel": "conda-forge", "md5": f"{name}{version}"}
        for name, (version, build) in rows.items()
    }
    return _ok("conda", {"name": "train", "prefix": "/opt/env", "packages": packages, "pinned": []})


def _distributions(shape: Shape) -> Dict[str, Any]:
    installer = shape.manager
    rows = {name: {"version": version, "installer": installer} for name, version in shape.packages.items()}
    if shape.torch:
        rows["torch"] = {"version": shape.torch, "installer": installer}
    if shape.cuda and shape.manager == "pip":
        usual, major = TORCH_DEFAULTS[str(shape.torch)], shape.cuda.split(".")[0]
        for family, version in (("nccl", usual.nccl), ("cudnn", usual.cudnn)):
            rows[f"nvidia-{family}-cu{major}"] = {"version": version, "installer": "pip"}
        rows["triton"] = {"version": usual.triton, "installer": "pip"}
    return rows


def _cuda(shape: Shape) -> Section:
    if not shape.gpus:
        return Section("cuda", 1, "absent")
    path = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{shape.driver}"
    libcuda = {"path": path, "version": shape.driver, "origin": "system", "via": "ld.so.cache"}
    facts = {"nvcc": None, "home": None, "default": None, "toolkits": {}, "libcuda": libcuda, "compat": False}
    return _ok("cuda", facts)


def _nccl_settings(shape: Shape) -> Dict[str, Any]:
    settings = {name: SETTINGS[name] for name in shape.settings}
    if _needs_gid_index(shape):
        settings["NCCL_IB_GID_INDEX"] = "3"
    return {name: {"value": value, "origin": "environment"} for name, value in settings.items()}


def _needs_gid_index(shape: Shape) -> bool:
    """NCCL chooses a GID of RoCE v2 by itself from 2.21 on."""
    return (
        shape.fabric == "RoCE"
        and bool(shape.cuda)
        and numbers(TORCH_DEFAULTS[str(shape.torch)].nccl) < (2, 21)
    )


def _gpu(shape: Shape, index: int) -> Section:
    if not shape.gpus:
        return Section("gpu", 1, "absent")
    card = shape.card
    has_ecc = "GeForce" not in card.product
    each: Dict[str, Any] = {
        "addressing": "none",
        "compute_capability": card.capability,
        "compute_mode": "default",
        "ecc": "enabled" if has_ecc else None,
        "ecc_pending": "enabled" if has_ecc else None,
        "gsp_mode": "enabled",
        "inforom": "G520.0200.00.05",
        "memory_bytes": card.memory_gib * GIB,
        "mig": "disabled" if card.nvlinks else None,
        "mig_pending": "disabled" if card.nvlinks else None,
        "pcie_generation_max": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "persistence": "enabled",
        "power_limit_default_mw": 400000,
        "power_limit_mw": 400000,
        "product": card.product,
        "remapped_failure": False,
        "remapped_pending": False,
        "vbios": "96.00.89.00.01",
        "virtualization": "none",
    }
    if card.nvlinks:
        each.update(nvlinks=card.nvlinks, nvlinks_up=card.nvlinks)
    if card.fabric:
        each.update(fabric_state="completed", fabric_status=0, fabric_health=[])
    manager = {"switches": 4, "installed": True, "running": True, "version": "as driver"}
    facts = {
        "platform": "linux",
        "driver": shape.driver,
        "cuda": DRIVERS[shape.driver],
        "count": shape.gpus,
        "confidential": "disabled" if card.fabric else None,
        "module": "as driver",
        "flavour": "open",
        "nvml": "as driver",
        "each": each,
        "devices": {},
        "inventory": {"pci": None if shape.contained else shape.gpus, "proc": shape.gpus},
        "visible": {"count": shape.gpus, "form": "all", "variable": None},
        "uvm": True,
        "fabric_manager": manager if card.fabric and not shape.contained else None,
    }
    cards = {
        str(ordinal): {
            "uuid": f"GPU-{index:08x}-{ordinal:04x}",
            "temperature_c": 30 + (index + ordinal) % 9,
            "pcie_generation": 1,
            "throttle_reasons": ["gpu_idle"],
            "ecc_corrected": 0,
            "ecc_uncorrected": 0,
            "memory_used_bytes": 600 << 20,
            "memory_reserved_bytes": 598 << 20,
            "memory_hidden_bytes": 2 << 20,
            "processes": [],
        }
        for ordinal in range(shape.gpus)
    }
    return _ok("gpu", facts, devices=cards, not_examined={"Xid lines of the kernel's log": "needs root"})


def _host(shape: Shape, index: int) -> Section:
    facts = {
        "launch": shape.launch,
        "distribution": {"id": "ubuntu", "version": "22.04", "name": "Ubuntu 22.04.4 LTS"},
        "kernel": "5.15.0-105-generic",
        "kernel_arguments": ["iommu=pt"],
        "architecture": "x86_64",
        "glibc": "2.35",
        "cpu": {"model": "Intel(R) Xeon(R) Platinum 8480C", "sockets": 2, "cores": 112, "threads": 224},
        "clocksource": "tsc",
        "transparent_hugepages": "madvise",
        "hugepages": {"2048kB": 0},
        "swap": False,
        "virtualisation": "none",
        "container": shape.container,
        "sysctl": {"vm.swappiness": 10},
        "own_name": "address",
    }
    notes = {"hostname": f"h{index}", "memory_bytes": 2163712016384 + 4096 * index, "uptime_s": 1000 * index}
    return _ok("host", facts, **notes)


def _libraries(shape: Shape) -> Section:
    if shape.torch is None:
        return Section("libraries", 1, "absent")
    facts: Dict[str, Any] = {"missing": [], "copies": {}}
    library = "{site}/torch/lib/libtorch_cpu.so"
    if shape.cuda:
        usual = TORCH_DEFAULTS[shape.torch]
        library = "{site}/torch/lib/libtorch_cuda.so"
        parts = dict.fromkeys(["adv", "cnn", "graph", "ops"], "beside")
        for family, version in (("nccl", usual.nccl), ("cudnn", usual.cudnn), ("cudart", usual.cudart)):
            path = f"{{site}}/nvidia/{family}/lib/lib{family}.so"
            facts[family] = {"path": path, "version": version, "origin": "environment", "via": "RPATH"}
        facts["nccl"]["cuda"] = shape.cuda
        facts["cudnn"]["parts"] = parts
        built_with = {"cudnn": usual.cudnn, "nccl": usual.nccl}
    else:
        built_with = {}
    facts["torch"] = {"library": library, "search": "RPATH", "glibc": "2.28", "built_with": built_with}
    return _ok("libraries", facts)


def _limits(shape: Shape, index: int) -> Section:
    unlimited = {"soft": "unlimited", "hard": "unlimited"}
    facts = {
        "memlock_bytes": unlimited,
        "nofile": {"soft": 1048576, "hard": 1048576},
        "nproc": unlimited,
        "stack_bytes": {"soft": 8388608, "hard": "unlimited"},
        "core_bytes": {"soft": 0, "hard": "unlimited"},
        "address_space_bytes": unlimited,
        "file_bytes": unlimited,
        "cpu_s": unlimited,
        "cap_ipc_lock": False,
        "cap_sys_nice": False,
        "seccomp": "off",
        "umask": "0022",
        "cpus": 32,
        "numa_nodes": "all",
        "memory_policy": "default",
        "nice": 0,
        "scheduler": "other",
        "cpu_quota_millicpus": "unlimited",
        "dev_shm_gib": 64 + index % 2,
    }
    notes = {
        "dev_shm_bytes": (64 + index % 2) * GIB,
        "dev_shm_free_bytes": 63 * GIB - index,
        "tmp_free_bytes": 99 * GIB + index,
        "cpus": f"{32 * (index % 2)}-{32 * (index % 2) + 31}",
        "numa_nodes": "0-1",
        "control_group": {
            "memory_max_bytes": 500 * GIB + 4096 * index,
            "memory_high_bytes": "unlimited",
            "pids_max": 1383000 + index,
            "cpus": 32,
        },
    }
    return _ok("limits", facts, **notes)


def _network(shape: Shape, index: int) -> Section:
    plain = {"mtu": 1500, "prefixes": "ipv4/22", "speed_mbps": 25000}
    interfaces: Dict[str, Any] = {"physical": {"ice": {"count": 1, "each": plain, "devices": {}}}}
    notes: Dict[str, Any] = {
        "interfaces": {
            "eth0": {"kind": "physical", "driver": "ice", "up": True, "addresses": [f"10.20.1.{index}/22"]}
        },
        "gateway": "10.20.0.1",
        "unused": [],
    }
    facts: Dict[str, Any] = {"interfaces": interfaces, "hcas": {}, "verbs": None, "modules": {}, "ofed": None}
    selection: Dict[str, Any] = {}
    if shape.fabric in ("InfiniBand", "RoCE"):
        layer = "InfiniBand" if shape.fabric == "InfiniBand" else "Ethernet"
        each: Dict[str, Any] = {
            "board": "MT_0000000838",
            "driver": "mlx5_core",
            "firmware": "28.39.2048",
            "rate": "400 Gb/sec (4X NDR)",
        }
        if layer == "Ethernet":
            each["active_mtu"] = 4096
            gid = {"address": True, "family": "ipv4", "roce": 2}
            by = "NCCL_IB_GID_INDEX" if _needs_gid_index(shape) else "own choice"
            selection["roce_gid"] = {"by": by, "each": gid, "devices": {}}
        ports = {
            "cards": shape.rails,
            "ports": shape.rails,
            "active": shape.rails,
            "each": each,
            "devices": {},
        }
        facts.update(hcas={f"MT4129 {layer}": ports}, verbs=True, modules={"mlx5_core": "24.04-0.7.0"})
        notes["hcas"] = {
            f"MT4129 {layer}": {
                str(port): {"name": f"mlx5_{port}:1", "guid": f"{index:04x}:{port:04x}"}
                for port in range(shape.rails)
            }
        }
    facts["selection"] = selection
    return _ok("network", facts, **notes)


def _python(shape: Shape) -> Section:
    prefix = "/opt/env"
    facts = {
        "version": "3.11.8",
        "implementation": "cpython",
        "executable": f"{prefix}/bin/python",
        "prefix": prefix,
        "base_prefix": prefix,
        "soabi": "cpython-311-x86_64-linux-gnu",
        "asked": "python3",
        "site_packages": [f"{prefix}/lib/python3.11/site-packages"],
        "user_site": {
            "folder": "$HOME/.local/lib/python3.11/site-packages",
            "enabled": True,
            "exists": False,
        },
        "path_outside_prefix": [],
    }
    return _ok("python", facts)


def _storage(shape: Shape, index: int) -> Section:
    root: Dict[str, Any] = {
        "fstype": "overlay" if shape.contained else "ext4",
        "network": False,
        "access": "rw",
        "options": {},
    }
    shm = {"fstype": "tmpfs", "network": False, "access": "rw", "options": {"nosuid": True}}
    facts = {"root": root, "tmp": "as root", "shm": shm, "prefix": "as root", "workdir": "as root"}
    return _ok("storage", facts, root={"path": "/", "free_bytes": 200 * GIB - index})


def _topology(shape: Shape) -> Section:
    hcas = shape.rails if shape.fabric in ("InfiniBand", "RoCE") else 0
    if not shape.gpus and not hcas:
        return Section("topology", 1, "absent")
    gpus = [
        {"numa": 0, "gpus": " ".join("X" if a == b else "NODE" for b in range(shape.gpus)), "nics": ""}
        for a in range(shape.gpus)
    ]
    nics = [{"kind": "hca", "numa": 0, "pcie": "x16 32 GT/s"} for _ in range(hcas)]
    facts = {
        "gpus": gpus,
        "nics": nics,
        "gdr": "dmabuf" if hcas and shape.gpus else None,
        "gdrcopy": "none",
        "iommu": "identity",
        "one_iommu_group": False,
        "acs": None,
    }
    return _ok("topology", facts, not_examined={"ACS": "takes root"})


def _torch(shape: Shape) -> Section:
    if shape.torch is None:
        return Section("torch", 1, "absent")
    major = shape.cuda.split(".")[0] if shape.cuda else ""
    facts = {
        "version": shape.torch,
        "git_version": "63d5e9221bedd1546b7d364b5ce4171547db12a9",
        "cuda": shape.cuda,
        "hip": None,
        "debug": False,
        "packaging": "conda" if shape.manager == "conda" else "wheel",
        "place": "{site}/torch",
        "torchvision": None,
        "torchaudio": None,
        "architectures": ARCHITECTURES.get(major, []),
    }
    return _ok("torch", facts)
