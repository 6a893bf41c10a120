"""The machine under the environment."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import host
from envaudit.probe.virtualisation import container_kind, virtualisation_kind

MakeNode = Callable[..., Context]


def read(make_node: MakeNode, files: Dict[str, str | bytes] | None = None, **node: Any) -> Answer:
    """The section of a node with these files."""
    plain: Dict[str, str | bytes] = {
        "/etc/os-release": "ID=debian\n",
        "/proc/sys/kernel/osrelease": "6.1\n",
    }
    return host.read(make_node({**plain, **(files or {})}, **node))


def test_host_of_this_machine_agrees_with_the_system() -> None:
    """Kernel, architecture, C library and processors are those that the system itself reports."""
    answer = host.read(Context(environ=dict(os.environ), workdir="/", launch="local", interpreter={}))
    assert "ok" == answer.status, answer.errors
    libc_version = ctypes.CDLL(None).gnu_get_libc_version
    libc_version.restype = ctypes.c_char_p
    expected = (
        os.uname().release,
        os.uname().machine,
        libc_version().decode(),
        os.sysconf("SC_NPROCESSORS_ONLN"),
    )
    facts = answer.facts
    assert expected == (facts["kernel"], facts["architecture"], facts["glibc"], facts["cpu"]["threads"])
    assert os.uname().nodename == answer.notes["hostname"]


@pytest.mark.parametrize("launch", ["local", "ssh", "slurm", "exec", "inband", "prolog"])
def test_launch_is_a_fact(make_node: MakeNode, launch: str) -> None:
    """How a node was reached decides what compares with what."""
    assert launch == read(make_node, launch=launch).facts["launch"]


def test_distribution_is_read_with_and_without_quotes(make_node: MakeNode) -> None:
    """os-release(5) allows both kinds of quotes and none."""
    text = "# x\nID=rocky\nVERSION_ID='9.3'\nPRETTY_NAME=\"Rocky Linux 9.3 (Blue Onyx)\"\n"
    expected = {"id": "rocky", "version": "9.3", "name": "Rocky Linux 9.3 (Blue Onyx)"}
    assert expected == read(make_node, {"/etc/os-release": text}).facts["distribution"]


def test_kernel_arguments_that_shape_training_are_facts_in_one_order(make_node: MakeNode) -> None:
    """The bootloader's order is no drift; the order of huge page sizes and counts has a meaning."""
    line = "ro pci=realloc hugepagesz=1G hugepages=8 iommu=pt hugepagesz=2M hugepages=64 BOOT_IMAGE=/v quiet"
    answer = read(make_node, {"/proc/cmdline": line + "\n"})
    expected = ["hugepagesz=1G", "hugepages=8", "hugepagesz=2M", "hugepages=64", "iommu=pt", "pci=realloc"]
    assert expected == answer.facts["kernel_arguments"]
    assert "ro BOOT_IMAGE=/v quiet" == answer.notes["kernel_arguments"]


def test_secret_of_the_kernel_command_line_stays_on_the_node(make_node: MakeNode) -> None:
    """Installers get passwords and URLs with credentials on that line."""
    line = "inst.ks=https://u:hunter2@host/ks.cfg root_password=hunter2 quiet\n"
    assert "hunter2" not in str(read(make_node, {"/proc/cmdline": line}))


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("10.0.0.1 gpu01.x gpu01\n", "address"),
        ("127.0.0.1 localhost\n127.0.1.1 GPU01.x gpu01\n", "loopback"),
        ("10.0.0.1 gpu01.x\n127.0.1.1 gpu01.x\n", "loopback"),
        ("::1 gpu01.x\n", "loopback"),
        ("# 10.0.0.1 gpu01.x\n10.0.0.1 other\n", "nothing"),
        ("", "nothing"),
    ],
)
def test_own_name_is_told_as_loopback_or_address(make_node: MakeNode, hosts: str, expected: str) -> None:
    """Gloo advertises the address of the own name: 127.0.1.1 reaches nobody else."""
    assert expected == read(make_node, {"/etc/hosts": hosts}, hostname="gpu01.x").facts["own_name"]


def test_own_name_of_a_resolver_that_comes_before_the_file_is_asked(make_node: MakeNode) -> None:
    """Where nsswitch.conf puts DNS first, the file does not decide."""
    files: Dict[str, str | bytes] = {
        "/etc/hosts": "127.0.1.1 gpu01\n",
        "/etc/nsswitch.conf": "hosts: dns files\n",
    }
    assert "address" == read(make_node, files, hostname="gpu01", own_name="address").facts["own_name"]


def test_resolver_that_hangs_costs_one_fact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead name server makes the own name unknown after its bound; the rest of the host is read."""
    import time

    monkeypatch.setattr(host, "_from_hosts", lambda context, name: [])
    monkeypatch.setattr(host, "_resolve", lambda name: time.sleep(60))
    monkeypatch.setattr(host, "_RESOLVE_TIMEOUT_S", 0.3)
    answer = host.read(Context(environ={}, workdir="/", launch="local", interpreter={}))
    assert ("partial", None) == (answer.status, answer.facts["own_name"])
    assert [f"resolving the own name {os.uname().nodename}: no answer within 0.3 s"] == list(answer.errors)
    assert os.uname().release == answer.facts["kernel"]


def test_processors_are_counted_once_per_core(make_node: MakeNode) -> None:
    """Two sockets, two cores each, two threads a core; one thread is offline."""
    files: Dict[str, str | bytes] = {"/sys/devices/system/cpu/online": "0-2,4-7\n"}
    for number in range(8):
        folder = f"/sys/devices/system/cpu/cpu{number}/topology"
        files[f"{folder}/physical_package_id"] = f"{number // 4}\n"
        files[f"{folder}/core_cpus_list"] = f"{number // 2 * 2}-{number // 2 * 2 + 1}\n"
    files["/sys/devices/system/node/online"] = "0-1\n"
    cpu = read(make_node, files).facts["cpu"]
    assert (2, 4, 7, 2) == tuple(cpu[key] for key in ("sockets", "cores", "threads", "numa_nodes"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model name\t: AMD  EPYC 9654\nflags\t\t: fpu\n", "AMD EPYC 9654"),
        ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n", "implementer 0x41 part 0xd4f"),
        ("\x00garbage", None),
    ],
)
def test_processor_model_is_read_on_each_architecture(make_node: MakeNode, text: str, expected: str) -> None:
    """x86, POWER and Arm name their processors in other fields."""
    assert expected == read(make_node, {"/proc/cpuinfo": text}).facts["cpu"]["model"]


@pytest.mark.parametrize("text", ["²³\n", "9" * 5000, "-1\n", "0x10\n"])
def test_number_that_is_none_costs_one_fact_and_not_the_section(make_node: MakeNode, text: str) -> None:
    """Python takes `²³` for digits and refuses to read them, and reads no number of 5,000 digits."""
    files: Dict[str, str | bytes] = {
        "/proc/uptime": text,
        "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": text,
        "/proc/sys/net/core/rmem_max": text,
        "/sys/devices/system/cpu/online": text,
    }
    answer = read(make_node, files)
    seen = (answer.facts["hugepages"], answer.facts["cpu"]["threads"], answer.notes["uptime_s"])
    assert ({"2048kB": None}, None, None) == seen
    assert {"net.core.rmem_max": text.strip()} == answer.facts["sysctl"]


def test_list_of_more_processors_than_a_kernel_has_is_cut(make_node: MakeNode) -> None:
    """A list that repeats itself without an end would take all memory."""
    text = "0-9999,0-99999,junk,7-3," * 1000
    assert 8192 == read(make_node, {"/sys/devices/system/cpu/online": text}).facts["cpu"]["threads"]


def test_settings_of_the_kernel_are_integers_where_they_are_one(make_node: MakeNode) -> None:
    """Tabs between three values are one space; a value that this kernel lacks is left out."""
    files: Dict[str, str | bytes] = {
        "/proc/sys/net/core/rmem_max": "67108864\n",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456\n",
        "/proc/sys/kernel/shmmax": "18446744073692774399\n",
    }
    expected = {
        "kernel.shmmax": "18446744073692774399",
        "net.core.rmem_max": 67108864,
        "net.ipv4.tcp_rmem": "4096 131072 6291456",
    }
    assert expected == read(make_node, files).facts["sysctl"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"/proc/sys/kernel/osrelease": "5.15.90.1-microsoft-standard-WSL2"}, "wsl"),
        ({"/proc/cpuinfo": "flags : fpu\n", "/sys/class/dmi/id/sys_vendor": "QEMU"}, "none"),
        ({"/proc/cpuinfo": "flags : hypervisor\n", "/sys/class/dmi/id/sys_vendor": "QEMU"}, "kvm"),
        ({"/proc/cpuinfo": "flags : hypervisor\n", "/sys/class/dmi/id/sys_vendor": "Amazon EC2"}, "amazon"),
        ({"/proc/cpuinfo": "flags : hypervisor\n", "/sys/hypervisor/type": "xen"}, "xen"),
        ({"/proc/cpuinfo": "flags : hypervisor\n"}, "vm"),
        ({"/sys/class/dmi/id/sys_vendor": "QEMU"}, "kvm"),
        ({"/sys/class/dmi/id/sys_vendor": "HPE"}, "none"),
        ({}, None),
    ],
)
def test_virtualisation_is_told_by_processor_and_firmware(
    make_node: MakeNode, files: Dict[str, str], expected: str | None
) -> None:
    """Where neither tells, it is unknown, not metal."""
    assert expected == virtualisation_kind(make_node(files))


@pytest.mark.parametrize(
    ("files", "environ", "expected"),
    [
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({"/.singularity.d/runscript": ""}, {}, "apptainer"),
        ({"/run/systemd/container": "lxc\n"}, {}, "lxc"),
        ({"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, "none"),
    ],
)
def test_container_is_told_by_its_marks(
    make_node: MakeNode, files: Dict[str, str], environ: Dict[str, str], expected: str
) -> None:
    """Each kind of container leaves a mark of its own."""
    assert expected == container_kind(make_node(files, environ=environ))


@pytest.mark.parametrize(
    ("name", "status"),
    [("healthy-h100", "ok"), ("cpu-only", "ok"), ("garbled", "partial"), ("denied-and-hanging", "partial")],
)
def test_fake_node_has_its_status(fake_node: Callable[[str], Context], name: str, status: str) -> None:
    """Healthy, virtual, garbled and denied hosts are told apart."""
    assert status == host.read(fake_node(name)).status


def test_facts_of_a_denied_host_are_unknown_not_absent(fake_node: Callable[[str], Context]) -> None:
    """What may not be read is null, never `none` or zero."""
    facts = host.read(fake_node("denied-and-hanging")).facts
    for name in ("distribution", "kernel", "hugepages", "swap", "virtualisation", "clocksource"):
        assert facts[name] is None, name
    assert {"model", "sockets", "cores", "threads", "numa_nodes", "governor"} == set(facts["cpu"])
    assert {None} == set(facts["cpu"].values())
