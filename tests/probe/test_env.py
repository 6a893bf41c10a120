"""Variables that shape training, and what NCCL will make of its settings files."""

from __future__ import annotations

from typing import Callable, Dict

import pytest

from envaudit.probe.context import Answer, Context
from envaudit.probe.sections import env

MakeNode = Callable[..., Context]


def read(make_node: MakeNode, environ: Dict[str, str], files: Dict[str, str | bytes] | None = None) -> Answer:
    """The section of a node with these variables and files."""
    return env.read(make_node(files, environ=environ, hostname="gpu01.cluster.example"))


@pytest.mark.parametrize(
    "name",
    [
        "CUDA_HOME",
        "UCX_TLS",
        "TP_SOCKET_IFNAME",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDNN_ERRATA_JSON_FILE",
        "NVIDIA_TF32_OVERRIDE",
        "HSA_OVERRIDE_GFX_VERSION",
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        "LD_PRELOAD",
        "PYTHONPATH",
        "PYTHONHASHSEED",
        "XLA_FLAGS",
        "HF_HOME",
    ],
)
def test_variable_on_the_list_is_a_fact(make_node: MakeNode, name: str) -> None:
    """What shapes training is compared."""
    assert {name: "x"} == read(make_node, {name: "x"}).facts["variables"]


def test_nccl_setting_is_told_once(make_node: MakeNode) -> None:
    """A setting of NCCL stands among the effective ones alone: one change is one drift."""
    facts = read(make_node, {"NCCL_ALGO": "Ring"}).facts
    assert ({}, {"NCCL_ALGO": {"value": "Ring", "origin": "environment"}}) == (
        facts["variables"],
        facts["nccl"],
    )


@pytest.mark.parametrize(
    "name",
    [
        "RANK",
        "MASTER_ADDR",
        "SLURM_JOB_ID",
        "SLURM_STEP_NODELIST",
        "CUDA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "NCCL_HOSTID",
        "NCCL_DEBUG_FILE",
        "NCCL_TOPO_DUMP_FILE",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        "CUDA_MPS_PIPE_DIRECTORY",
        "CUDA_CACHE_PATH",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "CUBLAS_LOGDEST_DBG",
        "CONDA_SHLVL",
        "CONDA_PREFIX_1",
    ],
)
def test_variable_that_differs_by_nature_is_a_note(make_node: MakeNode, name: str) -> None:
    """What differs on every rank, node or job is shown and never compared."""
    answer = read(make_node, {name: "7"})
    assert ({}, {}, {name: "7"}) == (
        answer.facts["variables"],
        answer.facts["nccl"],
        answer.notes["variables"],
    )


@pytest.mark.parametrize(
    "name", ["PATH", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY", "PS1", "XCUDA_HOME", "nccl_algo"]
)
def test_variable_off_the_list_stays_on_the_node(make_node: MakeNode, name: str) -> None:
    """Nobody asked for the rest of the environment."""
    answer = read(make_node, {name: "private"})
    assert "private" not in str(answer)


def test_values_get_placeholders(make_node: MakeNode) -> None:
    """Home, user, host and job are told by their names."""
    environ = {"HOME": "/home/al", "USER": "al_user", "SLURM_JOB_ID": "81231"}
    environ["LD_LIBRARY_PATH"] = "/home/al/lib:/scratch/al_user/81231/gpu01"
    expected = "$HOME/lib:/scratch/$USER/$JOB_ID/$HOSTNAME"
    assert expected == read(make_node, environ).facts["variables"]["LD_LIBRARY_PATH"]


def test_nccl_setting_of_the_environment_wins(make_node: MakeNode) -> None:
    """The order is environment, the user's file, the system's file."""
    files: Dict[str, str | bytes] = {
        "/home/al/.nccl.conf": "NCCL_ALGO=Tree\nNCCL_PROTO=LL\n",
        "/etc/nccl.conf": "NCCL_ALGO=Ring\nNCCL_PROTO=Simple\nNCCL_IB_HCA=mlx5\n",
    }
    expected = {
        "NCCL_ALGO": {"value": "NVLS", "origin": "environment"},
        "NCCL_PROTO": {"value": "LL", "origin": "~/.nccl.conf"},
        "NCCL_IB_HCA": {"value": "mlx5", "origin": "/etc/nccl.conf"},
    }
    answer = read(make_node, {"HOME": "/home/al", "NCCL_ALGO": "NVLS"}, files)
    assert expected == answer.facts["nccl"]
    assert ["~/.nccl.conf", "/etc/nccl.conf"] == answer.notes["nccl_files"]


def test_home_of_somebody_else_holds_no_settings(make_node: MakeNode) -> None:
    """A container with a random user keeps HOME=/root; NCCL of that user reads nothing there either."""
    answer = env.read(make_node(environ={"HOME": "/root"}, denied=["/root"]))
    assert ("ok", {}) == (answer.status, answer.facts["nccl"])


def test_nccl_conf_file_replaces_the_users_own(make_node: MakeNode) -> None:
    """With NCCL_CONF_FILE set NCCL does not look at ~/.nccl.conf."""
    files: Dict[str, str | bytes] = {
        "/home/al/.nccl.conf": "NCCL_PROTO=LL\n",
        "/opt/my.conf": "NCCL_ALGO=Tree\n",
    }
    answer = read(make_node, {"HOME": "/home/al", "NCCL_CONF_FILE": "/opt/my.conf"}, files)
    assert {"value": "Tree", "origin": "NCCL_CONF_FILE"} == answer.facts["nccl"]["NCCL_ALGO"]
    assert "NCCL_PROTO" not in answer.facts["nccl"]


def test_nccl_file_is_read_as_nccl_reads_it(make_node: MakeNode) -> None:
    """No trimming, no comments after a value, the first of a name wins."""
    text = "# NCCL_A=1\nNCCL_B=2 # two\n NCCL_C=3\nNCCL_D\nNCCL_E=\nNCCL_F=1=2\nNCCL_B=9\nOTHER=\nNCCL_G =\n"
    settings = read(make_node, {}, {"/etc/nccl.conf": text}).facts["nccl"]
    assert {"NCCL_B": "2 # two", "NCCL_E": "", "NCCL_F": "1=2"} == {
        name: one["value"] for name, one in settings.items()
    }


def test_folder_in_the_place_of_an_nccl_file_is_none(make_node: MakeNode) -> None:
    """What a container runtime makes of a mount whose file the host lacks."""
    answer = read(make_node, {}, {"/etc/nccl.conf/empty": ""})
    assert ("ok", {}, []) == (answer.status, answer.facts["nccl"], answer.notes["nccl_files"])


def test_value_beyond_the_models_limit_is_cut(make_node: MakeNode) -> None:
    """One endless LD_LIBRARY_PATH does not make the model refuse the node."""
    value = read(make_node, {"LD_LIBRARY_PATH": "/x:" * 40_000}).facts["variables"]["LD_LIBRARY_PATH"]
    assert value.endswith("... (120000 characters)")
    assert len(value) < 64 * 1024


@pytest.mark.parametrize(
    ("name", "status"),
    [("healthy-h100", "ok"), ("cpu-only", "ok"), ("garbled", "ok"), ("denied-and-hanging", "partial")],
)
def test_fake_node_has_its_status(fake_node: Callable[[str], Context], name: str, status: str) -> None:
    """A settings file that may not be read makes the answer partial; garbage in it sets nothing."""
    assert status == env.read(fake_node(name)).status
