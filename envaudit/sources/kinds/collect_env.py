"""`python -m torch.utils.collect_env`, of every version, and vLLM's collect_env.py.

What each line is worth:

- "PyTorch version", what it was built for and the debug flag are torch's own constants. "None" for
  CUDA is a CPU build, whose list of architectures is empty; "N/A" says nothing, and all of it says
  that torch could not be imported.
- "CUDA runtime version" is the nvcc on PATH: `cuda/nvcc`, nothing of torch. "cuDNN version" lists
  files of the system, not what torch loads: a note of `libraries`.
- "No CUDA" for the GPUs: torch found none usable, nor did nvidia-smi. `gpu` is absent.
- "Could not collect" is unknown. On a Jetson and on Windows it stands there on healthy machines.
- GPUs are those of `nvidia-smi -L`, whatever CUDA_VISIBLE_DEVICES says. On ROCm it is device 0
  alone, and a note.
- "Libc version" is the host's since Python 3.8; before it is what the interpreter was built with.
- "[pip3]" and "[conda]" rows are the packages that the script finds interesting, never all. pip's
  version of torch may lack the local tag that torch's own constant has.
- "Is CUDA available", compilers, XNNPACK and the like are notes.

vLLM's environment variables and its topology are not read.
"""

from __future__ import annotations

import re
from typing import Any

from envaudit.errors import InputError
from envaudit.model.section import Section
from envaudit.sources.pasted import Paste, is_pasted, taken_apart
from envaudit.sources.pins import Pin, pin_of
from envaudit.sources.setting import Setting
from envaudit.sources.tables import (
    conda_package,
    conda_section,
    is_build,
    is_name,
    is_version,
    normalised,
    packages_section,
)

KIND = "collect_env"
IS_LOCK = False

_NO_CUDA = "No CUDA"
_NOTHING = ("", "N/A", "None", "Could not collect", _NO_CUDA)
_MACHINES = "x86_64|amd64|aarch64|arm64|ppc64le|s390x|riscv64|i686"
_OS = re.compile(rf"(?P<name>.*?)(?:[ ]\((?P<machine>{_MACHINES}|64-bit|32-bit)\))?\Z")
# Debian's kernels end in `-amd64`, which is no machine to uname.
_KERNEL = re.compile(rf"Linux-(?P<kernel>.+)-(?P<machine>{_MACHINES})(?:-with-.*)?\Z")
_PYTHON = re.compile(r"(?P<version>\d+\.\d+\.\d+[\w+]*)(?:[ |(]|\Z)")
_VERSION = re.compile(r"v?(?P<version>\d+(?:\.\d+)+)\b")
_GPU = re.compile(r"GPU[ ](?P<ordinal>\d{1,4}):[ ]*(?P<product>\S.{0,120})\Z")
_UUID = re.compile(r"\s*\((?:UUID:.*)?\)?\Z")
_MIG = re.compile(r"MIG[ ]+(?P<profile>\d{1,2}\w*\.\d{1,4}gb\S{0,20})[ ]+Device[ ]+\d{1,3}:")
_NO_ROWS = ("Could not collect", "No relevant packages", "N/A")


def matches(text: str) -> bool:
    """Whether it has lines of collect_env, the head or the tail alone too."""
    return is_pasted(text)


def read(text: str, where: str, setting: Setting) -> list[Section]:
    """A section for every subject that the paste speaks of.

    Raises:
        InputError: two reports in one text.
    """
    paste = taken_apart(text)
    twice = paste.repeated & {"PyTorch version", "OS", "Python platform", "Nvidia driver version"}
    if twice or paste.reports > 1:
        what = f"'{min(twice)}' is there with two values" if twice else f"{paste.reports} of them"
        raise InputError(
            f"holds more than one collect_env: {what}",
            where=where,
            next_step="Give each report a file of its own.",
        )
    made = (_torch(paste), _python(paste), _host(paste), _gpu(paste), _cuda(paste), _libraries(paste))
    return [section for section in (*made, *_packages(paste, setting)) if section is not None]


def _told(paste: Paste, label: str) -> str:
    """A value that says something; empty otherwise."""
    value = paste.values.get(label, "")
    return "" if value.split("\n")[0].strip() in _NOTHING or value.startswith("Could not collect") else value


def _section(name: str, facts: dict[str, Any], notes: dict[str, Any] | None = None) -> Section | None:
    kept = {key: value for key, value in (notes or {}).items() if value}
    return Section(name, 1, "partial", facts, kept) if facts or kept else None


def _torch(paste: Paste) -> Section | None:
    version = _told(paste, "PyTorch version")
    if paste.values.get("PyTorch version") == "N/A":
        return Section("torch", 1, "error", {}, {}, ("collect_env could not import torch",))
    facts: dict[str, Any] = {}
    if is_version(version):
        facts["version"] = version
    debug = paste.values.get("Is debug build", "")
    if debug in ("True", "Yes", "False", "No"):
        facts["debug"] = debug in ("True", "Yes")
    cuda, hip = paste.values.get("CUDA used to build PyTorch", ""), _told(paste, "ROCM used to build PyTorch")
    if _told(paste, "CUDA used to build PyTorch"):
        facts.update(cuda=cuda, hip=None)
    elif hip:
        facts.update(cuda=None, hip=hip)
    elif cuda == "None":
        facts.update(cuda=None, hip=None, architectures=[])
    available = paste.values.get("Is CUDA available", "")
    further = ("HIP runtime version", "MIOpen runtime version", "CUDA_MODULE_LOADING set to", "vLLM Version")
    notes: dict[str, Any] = {label: _told(paste, label)[:200] for label in further}
    notes["Is CUDA available"] = available[:20]
    return _section("torch", facts, notes)


def _python(paste: Paste) -> Section | None:
    said = _told(paste, "Python version")
    match = _PYTHON.match(said)
    # "3.7" alone, as old versions have it, is no full version.
    return _section("python", {"version": match["version"]} if match else {}, {"told": said[:200]})


def _host(paste: Paste) -> Section | None:
    facts: dict[str, Any] = {}
    system = _OS.match(_told(paste, "OS"))
    kernel = _KERNEL.match(_told(paste, "Python platform"))
    if system and system["name"]:
        facts["distribution"] = {"name": system["name"][:200]}
    machine = paste.cpu.get("Architecture") or (kernel["machine"] if kernel else "")
    machine = machine or (system["machine"] or "" if system else "")
    if re.fullmatch(_MACHINES, machine):
        facts["architecture"] = machine
    if kernel:
        facts["kernel"] = kernel["kernel"]
        if "microsoft" in kernel["kernel"].lower():
            facts["virtualisation"] = "wsl"
    glibc = re.fullmatch(r"glibc-(?P<version>\d+(?:\.\d+)+)", _told(paste, "Libc version"))
    if glibc and _python_minor(paste) >= (3, 8):
        facts["glibc"] = glibc["version"]
    cpu = _cpu(paste, machine)
    if cpu:
        facts["cpu"] = cpu
    labels = ("GCC version", "Clang version", "CMake version", "Libc version")
    notes = {label: _told(paste, label)[:200] for label in labels}
    notes["hypervisor"] = paste.cpu.get("Hypervisor vendor", "")[:80]
    return _section("host", facts, notes)


def _python_minor(paste: Paste) -> tuple[int, int]:
    match = re.match(r"(\d{1,2})\.(\d{1,3})", _told(paste, "Python version"))
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _cpu(paste: Paste, machine: str) -> dict[str, Any]:
    """What lscpu says in the words of /proc/cpuinfo; of Arm it has names of its own."""
    facts: dict[str, Any] = {}
    counts = {}
    for label in ("Socket(s)", "Core(s) per socket", "CPU(s)", "NUMA node(s)"):
        value = paste.cpu.get(label, "")
        if value.isascii() and value.isdigit() and len(value) < 7:
            counts[label] = int(value)
    if machine == "x86_64" and paste.cpu.get("Model name"):
        facts["model"] = " ".join(paste.cpu["Model name"].split())[:200]
    if "Socket(s)" in counts:
        facts["sockets"] = counts["Socket(s)"]
        if "Core(s) per socket" in counts:
            facts["cores"] = counts["Socket(s)"] * counts["Core(s) per socket"]
    online = _amount_of(paste.cpu.get("On-line CPU(s) list", ""))
    if online or "CPU(s)" in counts:
        facts["threads"] = online or counts["CPU(s)"]
    if "NUMA node(s)" in counts:
        facts["numa_nodes"] = counts["NUMA node(s)"]
    return facts


def _amount_of(listed: str) -> int:
    """How many `0-3,8` are; 0 where it is no such list."""
    total = 0
    for part in listed.split(","):
        match = re.fullmatch(r"(\d{1,6})(?:-(\d{1,6}))?", part.strip())
        if match is None:
            return 0
        total += int(match[2] or match[1]) - int(match[1]) + 1
    return total


def _gpu(paste: Paste) -> Section | None:
    said = paste.values.get("GPU models and configuration")
    driver = _told(paste, "Nvidia driver version")
    if said == _NO_CUDA:
        return Section("gpu", 1, "absent", {}, {})
    facts: dict[str, Any] = {}
    notes: dict[str, Any] = {}
    if re.fullmatch(r"\d+(?:\.\d+)+", driver):
        facts["driver"] = driver
    cards: dict[int, str] = {}
    instances: dict[int, dict[str, int]] = {}
    for line in _told(paste, "GPU models and configuration").split("\n"):
        card, mig = _GPU.match(line), _MIG.match(line)
        if card:
            cards[int(card["ordinal"])] = _UUID.sub("", card["product"]).strip()
        elif mig and cards:
            of_card = instances.setdefault(max(cards), {})
            of_card[mig["profile"]] = of_card.get(mig["profile"], 0) + 1
        elif line:
            # torch's own words, of its device 0.
            notes.setdefault("device 0", line[:120])
    if cards:
        facts.update(_folded(cards, instances))
    return _section("gpu", facts, notes)


def _folded(cards: dict[int, str], instances: dict[int, dict[str, int]]) -> dict[str, Any]:
    """Count, what most cards share, and what deviates, as the probe folds them."""
    rows: dict[int, dict[str, Any]] = {ordinal: {"product": product} for ordinal, product in cards.items()}
    for ordinal, of_card in instances.items():
        rows[ordinal].update(mig="enabled", mig_instances=of_card)
    each: dict[str, Any] = {}
    devices: dict[str, dict[str, Any]] = {}
    for key in ("mig", "mig_instances", "product"):
        held = [(ordinal, rows[ordinal][key]) for ordinal in sorted(rows) if key in rows[ordinal]]
        values = [value for _, value in held]
        if values:
            each[key] = max(values, key=values.count)
        for ordinal, value in held:
            if value != each[key]:
                devices.setdefault(str(ordinal), {})[key] = value
    return {"count": len(cards), "each": each, "devices": devices}


def _cuda(paste: Paste) -> Section | None:
    said = paste.values.get("CUDA runtime version", "")
    match = _VERSION.fullmatch(said)
    if match:
        return _section("cuda", {"nvcc": {"version": match["version"]}})
    # None was on PATH.
    return _section("cuda", {"nvcc": None}) if said == _NO_CUDA else None


def _libraries(paste: Paste) -> Section | None:
    lines = _told(paste, "cuDNN version").split("\n")
    files = [line.strip() for line in lines if line.strip() and not line.startswith("Probably one of")]
    return _section("libraries", {}, {"cuDNN on the system": [line[:200] for line in files[:100]]})


def _packages(paste: Paste, setting: Setting) -> list[Section | None]:
    distributions: dict[str, Any] = {}
    conda: dict[str, Any] = {}
    for row in paste.rows.get("pip", ()):
        pin = pin_of(row)
        if isinstance(pin, Pin) and pin.name and pin.version is not None:
            distributions[pin.name] = {"version": pin.version}
    for row in paste.rows.get("conda", ()):
        words = row.split()
        if row.startswith(_NO_ROWS) or not (len(words) >= 3 and is_name(words[0]) and is_version(words[1])):
            continue
        name, version, build = words[:3]
        channel = words[3] if len(words) > 3 and not words[3].startswith("[") else ""
        if channel == "pypi" or build == "<pip>":
            distributions.setdefault(normalised(name), {"version": version})
        elif is_build(build):
            conda[name] = conda_package(version, build, setting.channel_name(channel) if channel else "")
    return [
        conda_section(conda, whole=False) if conda else None,
        packages_section(distributions, whole=False) if distributions else None,
    ]
