"""Every recorded sample is read by a test, or it is said here why none reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.corpus

HERE = Path(__file__).parent

# Test file → the samples that it reads, by their folder.
READ: dict[str, dict[str, list[str]]] = {
    "test_network_samples.py": {
        "ib": [
            "ibstat-cx4-two-ca-active.txt",
            "ibstat-cx7-down-ethernet.txt",
            "ibstat-mlx4-port1-down-port2-up.txt",
            "ibstat-roce-cx6dx.txt",
            "superbench-ibstat.txt",
        ],
        "net": ["jc-ethtool-1.txt"],
        "sysfs_json": [
            "gcm-DGX_A100.json",
            "gcm-eth_learn_down_intf.json",
            "gcm-eth_learn_good.json",
            "gcm-eth_learn_mtu_bad.json",
            "gcm-learn_good.json",
            "gcm-learn_ib_intf_bad_rate.json",
            "gcm-learn_ib_intf_operstate_down.json",
            "gcm-learn_ib_misbound_if.json",
            "gpud-h100-9hca-sys-class-infiniband.json",
        ],
    },
    "test_gpu_samples.py": {
        "kmsg": ["gpud-dmesg-xid119.log", "gpud-kmsg-peermem.log"],
        "nvidia_smi_xml": [
            "telegraf-a100-sxm4-v12.xml",
            "telegraf-a10g.xml",
            "telegraf-gtx-1070-ti.xml",
            "telegraf-rtx-4000-sff-ada-v13.xml",
            "telegraf-tesla-t4.xml",
        ],
        "nvlink": ["azure-bad.txt", "azure-good.txt", "gpud-a100x8-nvlink-status.txt"],
        "topo": ["gpud-nvlink-status-a100.txt"],
    },
    "test_host_samples.py": {
        "conda": ["condalockfiles-conda-meta-python_abi.json", "syft-conda-meta-zlib.json"],
        "net": ["jc-proc-meminfo.txt"],
    },
    "test_lock_exports.py": {"conda": ["pangeo-pytorch-explicit-md5.lock"]},
    "test_topology_samples.py": {
        "lspci": ["gpud-lspci-vvv-acs-trimmed.txt"],
        "topo": ["nvidia-smi-topo-m-8gpu-1nic-all-SYS.txt", "nvidia-smi-topo-m-8xH200-8nic.txt"],
    },
    "test_clock_samples.py": {
        "time": [
            "chronyc-c-tracking.csv",
            "chronyc-tracking-UNSYNC-tail.txt",
            "chronyc-tracking-daemon-down.txt",
            "chronyc-tracking-normal-debian.txt",
            "chronyc-tracking-normal-ec2-centos.txt",
            "chronyc-tracking-ok-2.txt",
            "jc-ntpq-p-ubuntu1804.out",
            "jc-timedatectl-centos77.out",
            "jc-timedatectl-rtc-local.out",
            "jc-timedatectl-timesync-status.out",
            "jc-timedatectl-ubuntu1804.out",
            "jc-ubuntu-18.04-ntpq-p.out.txt",
            "timedatectl-show-timesync-NO-NTPMessage.txt",
            "timedatectl-show-timesync-all-synced.txt",
            "timedatectl-timesync-status-NEVER-synced.txt",
            "timedatectl-timesync-status-synced.txt",
        ],
    },
}

_ECC = "The plain words of nvidia-smi are not read: its XML has the same counts."
_FLAPS = "Flaps of a link are counted in sysfs, as link_downed; no log is read for them."
_COLLECTIVES = "Nothing reads it yet: results of nccl-tests are for the check of collectives."
NOT_READ = {
    "conda/env-export-linux-mic.yml": "The same file as environments/20-mic-prefix.yml, which lint reads.",
    "kmsg/azure-0flaps-syslog.txt": _FLAPS,
    "kmsg/azure-ib6-6flaps-syslog.txt": _FLAPS,
    "kmsg/nccl-log-lines.txt": "Lines of NCCL's own log, which no section reads.",
    "nccl_tests/superbench-a100x8-allreduce-c0.log": _COLLECTIVES,
    "nccl_tests/superbench-nvbandwidth.log": _COLLECTIVES,
    "net/jc-lsmod-ubuntu1804.txt": "lsmod is not run: /sys/module says what is loaded, and the versions.",
    "net/jc-proc-version.txt": "Release and build are read from /proc/sys/kernel.",
    "nvidia_smi_text/azure-nvsmi-ecc-bad.txt": _ECC,
    "nvidia_smi_text/azure-nvsmi-ecc-good.txt": _ECC,
    "pip/pip-docs-inspect-example.json": "Nothing reads it yet: it is for the reader of other reports.",
    "topo/gcm-nccl-tests-allreduce-pass.txt": _COLLECTIVES,
    "topo/gcm-nccl-tests-mpi-slots-error.txt": _COLLECTIVES,
    "topo/superbench-nccl_allreduce.log": "The same text as nccl_tests/superbench-a100x8-allreduce-c0.log.",
}


def read_samples() -> dict[str, str]:
    """Sample, by its path below samples/, to the test that reads it."""
    return {
        f"{folder}/{name}": test
        for test, folders in READ.items()
        for folder, names in folders.items()
        for name in names
    }


def test_every_sample_is_listed_once(corpus: Path) -> None:
    """None is forgotten, none is both read and not, and none that is listed has gone."""
    samples = corpus / "samples"
    present = {str(path.relative_to(samples)) for path in samples.rglob("*") if path.is_file()}
    read = read_samples()
    assert set() == read.keys() & NOT_READ.keys()
    assert present == read.keys() | NOT_READ.keys()


@pytest.mark.parametrize("sample", sorted(read_samples()))
def test_sample_that_is_read_stands_in_its_test(sample: str) -> None:
    """By its name, or by its folder where the test takes all of it."""
    text = (HERE / read_samples()[sample]).read_text(encoding="utf-8")
    folder, _, name = sample.partition("/")
    assert name in text or f'"{folder}"' in text


def test_samples_that_are_called_the_same_are_the_same(corpus: Path) -> None:
    """What is passed over as a copy is one."""
    copies = {
        "samples/topo/superbench-nccl_allreduce.log": "samples/nccl_tests/superbench-a100x8-allreduce-c0.log",
        "samples/conda/env-export-linux-mic.yml": "environments/20-mic-prefix.yml",
    }
    for one, other in copies.items():
        assert (corpus / one).read_bytes() == (corpus / other).read_bytes()
