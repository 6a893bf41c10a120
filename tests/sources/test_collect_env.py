"""collect_env in all the shapes in which people paste it."""

from __future__ import annotations

import textwrap

import pytest

from envaudit.errors import InputError
from envaudit.model.section import Section
from tests.sources.samples import COLLECT_ENV, read, said

HEAD = COLLECT_ENV.partition("CPU:")[0]


def facts(text: str) -> dict[str, dict[str, object]]:
    """Facts by section."""
    return {name: section.facts for name, section in read(text).items()}


def line(label: str, value: str, text: str = COLLECT_ENV) -> str:
    """The paste with another value of one label."""
    lines = [f"{label}: {value}" if row.startswith(f"{label}:") else row for row in text.split("\n")]
    assert f"{label}: {value}" in lines
    return "\n".join(lines)


def test_whole_report_stands_at_the_paths_of_the_probe() -> None:
    """Every fact, and where it is."""
    expected = {
        "torch": {"version": "2.6.0+cu124", "debug": False, "cuda": "12.4", "hip": None},
        "python": {"version": "3.11.7"},
        "host": {
            "distribution": {"name": "Debian GNU/Linux 12 (bookworm)"},
            "architecture": "x86_64",
            "kernel": "6.1.0-18-amd64",
            "glibc": "2.36",
            "cpu": {"model": "Example CPU", "sockets": 2, "cores": 8, "threads": 9, "numa_nodes": 1},
        },
        "gpu": {
            "driver": "550.54.15",
            "count": 3,
            "each": {"product": "NVIDIA L4"},
            "devices": {"2": {"product": "NVIDIA A10"}},
        },
        "cuda": {"nvcc": {"version": "12.4.131"}},
        "libraries": {},
        "conda": {"packages": {"blas": {"version": "1.0", "build": "mkl", "channel": "conda-forge"}}},
        "packages": {"distributions": {"numpy": {"version": "1.26.4"}, "torch": {"version": "2.6.0"}}},
    }
    assert expected == facts(COLLECT_ENV)


def test_cudnn_files_of_the_system_are_no_fact_of_what_torch_loads() -> None:
    """They are kept as a note."""
    section = read(COLLECT_ENV)["libraries"]
    assert {} == section.facts
    assert [
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7",
        "/usr/lib/x86_64-linux-gnu/libcudnn_ops_infer.so.8.9.7",
    ] == section.notes["cuDNN on the system"]


@pytest.mark.parametrize(
    "text",
    [
        textwrap.indent(COLLECT_ENV, "    "),
        textwrap.indent(COLLECT_ENV, "> "),
        f"$ python collect_env.py\n{COLLECT_ENV}\nThanks for any help!\n",
        '  File "collect_env.py", line 724\nSyntaxError: invalid syntax\n$ python3 x.py\n' + COLLECT_ENV,
        "\n".join(row for row in COLLECT_ENV.split("\n") if row),
        f"<frozen runpy>:128: RuntimeWarning: found in sys.modules\n{COLLECT_ENV}",
        f"```\n{COLLECT_ENV}```\n",
        COLLECT_ENV.replace("\n", "   \n"),
    ],
    ids=["indented", "quoted", "prompt", "python 2 first", "no blank lines", "warning", "fenced", "spaces"],
)
def test_paste_in_another_shape_says_the_same(text: str) -> None:
    """How it was pasted is no difference."""
    assert facts(COLLECT_ENV) == facts(text)


def logged(before: str, text: str = COLLECT_ENV) -> str:
    """A log of the report; `{}` is the line's number in two digits."""
    rows = enumerate(text.split("\n"))
    return "\n".join(f"{before.format(f'{number % 60:02d}')}{row}".rstrip() for number, row in rows)


@pytest.mark.parametrize(
    "before",
    [
        "node07: ",
        "0: ",
        "[rank0]:",
        "[1,0]<stdout>:",
        "trainer-1  | ",
        "2026-11-30T02:10:{}.1234567Z ",
        "2026-11-30 02:10:{},123 INFO node07 ",
    ],
)
def test_report_out_of_a_log_says_the_same(before: str) -> None:
    """A parallel shell names the node of each line, a log its time."""
    assert facts(COLLECT_ENV) == facts(f"Starting\n{logged(before)}\n")


@pytest.mark.parametrize(
    "text",
    [
        COLLECT_ENV + COLLECT_ENV.replace("NVIDIA L4", "NVIDIA A10"),
        logged("node07: ") + "\n" + logged("node08: "),
        "\n".join(row for pair in zip(logged("0: ").split("\n"), logged("1: ").split("\n")) for row in pair),
    ],
    ids=["one after the other", "of two nodes", "of two ranks, mixed"],
)
def test_two_reports_that_look_alike_are_refused(text: str) -> None:
    """What one of them has, the other need not have."""
    with pytest.raises(InputError, match="more than one collect_env"):
        read(text)


def test_layout_of_vllm_says_the_same() -> None:
    """Headings and padded colons."""
    rows = []
    for row in HEAD.split("\n"):
        label, colon, value = row.partition(": ")
        rows.append(f"{label:<29}: {value}" if colon and "GPU " not in label else row)
    banner = f"{'=' * 30}\n        System Info\n{'=' * 30}\n"
    assert facts(HEAD) == facts(banner + "\n".join(rows) + f"\n{banner}")


def test_head_alone_says_nothing_of_the_rest() -> None:
    """What is not in the paste has no section."""
    assert ["cuda", "gpu", "host", "libraries", "python", "torch"] == sorted(facts(HEAD))
    assert "cpu" not in facts(HEAD)["host"]


def test_tail_alone_is_recognised() -> None:
    """Only the list of packages was kept."""
    text = "[pip3] nvidia-cublas==13.4.0.1\n[pip3] nvidia-cublas-cu12==12.9.1.4\n"
    assert {"nvidia-cublas": "13.4.0.1", "nvidia-cublas-cu12": "12.9.1.4"} == said(read(text))


def test_no_cuda_says_that_there_is_none_usable() -> None:
    """The sentinel is an answer: no GPU, no nvcc; a build for none has no architectures."""
    text = HEAD
    for label in ("CUDA runtime version", "Nvidia driver version", "GPU models and configuration"):
        text = "\n".join(row for row in text.split("\n") if not row.startswith("GPU "))
        text += f"{label}: No CUDA\n"
        text = "\n".join(
            row for row in text.split("\n") if not row.startswith(label) or row.endswith("No CUDA")
        )
    text = line("CUDA used to build PyTorch", "None", text)
    sections = read(text)
    assert Section("gpu", 1, "absent") == sections["gpu"]
    assert {"nvcc": None} == sections["cuda"].facts
    assert [] == sections["torch"].facts["architectures"]


@pytest.mark.parametrize("word", ["Could not collect", "N/A", ""])
def test_driver_that_could_not_be_told_is_unknown(word: str) -> None:
    """Not absent: on a Jetson and on Windows it is so on healthy machines."""
    assert "driver" not in facts(line("Nvidia driver version", word))["gpu"]


def test_rocm_build_names_device_0_in_a_note() -> None:
    """How many there are is not said."""
    text = "\n".join(row for row in HEAD.split("\n") if not row.startswith("GPU "))
    text = line("CUDA used to build PyTorch", "N/A", line("ROCM used to build PyTorch", "6.2.4-abc", text))
    text = line("Nvidia driver version", "Could not collect", text)
    text += "GPU models and configuration: AMD Radeon RX 7900 XTX (gfx1100)\n"
    sections = read(text)
    assert (None, "6.2.4-abc") == (sections["torch"].facts["cuda"], sections["torch"].facts["hip"])
    assert ({}, {"device 0": "AMD Radeon RX 7900 XTX (gfx1100)"}) == (
        sections["gpu"].facts,
        sections["gpu"].notes,
    )


def test_mig_instances_are_counted_under_their_card() -> None:
    """They are no GPUs of their own."""
    text = COLLECT_ENV.replace(
        "GPU 1: NVIDIA L4\n",
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n"
        "  MIG 3g.40gb     Device  1: (UUID: MIG-2)\n",
    )
    gpu = facts(text)["gpu"]
    assert 3 == gpu["count"]
    assert {"mig": "enabled", "mig_instances": {"3g.40gb": 2}, "product": "NVIDIA L4"} == gpu["each"]
    assert {"product": "NVIDIA A100-SXM4-80GB"} == gpu["devices"]["1"]


def test_torch_that_could_not_be_imported_is_an_error_and_not_absent() -> None:
    """The script says N/A to everything of it."""
    section = read(line("PyTorch version", "N/A"))["torch"]
    assert ("error", {}) == (section.status, section.facts)


def test_old_yes_and_no_are_booleans() -> None:
    """As versions before 1.6 print them."""
    assert facts(line("Is debug build", "Yes"))["torch"]["debug"] is True


@pytest.mark.parametrize(
    ("told", "version", "glibc"),
    [("3.7", None, None), ("3.7.16 (default)", "3.7.16", None), ("3.12.1 | packaged by x", "3.12.1", "2.36")],
)
def test_python_and_glibc_are_facts_where_they_are_whole_and_of_the_host(
    told: str, version: str | None, glibc: str | None
) -> None:
    """Before 3.8 the C library is that of the interpreter's build."""
    found = facts(line("Python version", told))
    assert (version, glibc) == (found.get("python", {}).get("version"), found["host"].get("glibc"))


def test_wsl_is_told_by_its_kernel() -> None:
    """As the probe tells it."""
    text = line("Python platform", "Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.35")
    host = facts(text)["host"]
    assert ("wsl", "5.15.167.4-microsoft-standard-WSL2") == (host["virtualisation"], host["kernel"])


def test_rows_of_conda_are_read_with_features_and_without_channel() -> None:
    """`[mkl]` is no channel, `<pip>` no build, an answer no package."""
    text = (
        "Versions of relevant libraries:\n[pip] Could not collect\n"
        "[conda] numpy   1.9.3   py27_p0   [mkl]\n[conda] torch  1.0.0a0+db5d313  <pip>\n"
        "[conda] Could not collect\n[conda] mkl  2019.1  144  \n"
    )
    sections = read(text)
    packages = {
        "numpy": {"version": "1.9.3", "build": "py27_p0"},
        "mkl": {"version": "2019.1", "build": "144"},
    }
    assert packages == sections["conda"].facts["packages"]
    assert {"torch": "1.0.0a0+db5d313"} == said(sections)


def test_two_reports_in_one_paste_are_refused() -> None:
    """Nobody mixes two nodes."""
    with pytest.raises(InputError, match="more than one collect_env"):
        read(COLLECT_ENV + line("PyTorch version", "2.5.0"))


def test_model_of_an_arm_processor_is_not_taken() -> None:
    """Lscpu has names for them that the kernel does not know."""
    text = COLLECT_ENV.replace("Architecture:            x86_64", "Architecture:            aarch64")
    assert "model" not in facts(text)["host"]["cpu"]
