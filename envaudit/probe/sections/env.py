"""Environment variables that shape training, and the NCCL settings in effect with their origin."""

from __future__ import annotations

import fnmatch
import re
from typing import Any, Dict

from envaudit.probe import ncclsettings
from envaudit.probe.context import Answer, Context
from envaudit.probe.hostname import host_names
from envaudit.probe.placeholders import Placeholders
from envaudit.probe.secrets import SECRET, clean, is_secret_name

SCHEMA = 1

_ALLOWED = (
    "CUDA_*",
    "NCCL_*",
    "CUBLAS_*",
    "CUBLASLT_*",
    "CUDNN_*",
    "NVIDIA_TF32_OVERRIDE",
    "HSA_*",
    "TORCH_*",
    "TORCHINDUCTOR_*",
    "PYTORCH_*",
    "GLOO_*",
    "UCX_*",
    "FI_*",
    "TP_*",
    "OMP_*",
    "MKL_*",
    "KMP_*",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "PYTHON*",
    "CONDA_*",
    "HF_HOME",
    "LANG",
    "LC_ALL",
    "TRITON_*",
    "XLA_*",
)
# Different on every rank, node, job or shell by nature: shown, never compared.
_BY_NATURE = (
    "RANK",
    "LOCAL_RANK",
    "MASTER_*",
    "SLURM_*ID*",
    "SLURM_*NODELIST",
    "*_VISIBLE_DEVICES",
    "NCCL_HOSTID",
    "NCCL_COMM_ID",
    "*_DEBUG_FILE",
    "*_DUMP_FILE",
    "*_TEMP_FILE",
    "*_LOGDEST_DBG",
    "CUDA_MPS_*",
    "*_CACHE_PATH",
    "*_CACHE_DIR",
    "CONDA_SHLVL",
    "CONDA_PROMPT_MODIFIER",
    "CONDA_PREFIX_[0-9]*",
)
_is_by_nature = re.compile("|".join(fnmatch.translate(pattern) for pattern in _BY_NATURE)).match
_is_allowed = re.compile("|".join(fnmatch.translate(pattern) for pattern in _ALLOWED)).match
_MAX_VALUE = 32 * 1024


def read(context: Context) -> Answer:
    """Facts `variables` (name → value) and `nccl` (name → value, origin); by nature different: notes.

    A setting of NCCL stands in `nccl` alone, with the origin `environment`: one fact in one place.
    """
    put = Placeholders(context.environ, host_names(context)).put
    variables: Dict[str, str] = {}
    own: Dict[str, str] = {}
    for name, value in sorted(context.environ.items()):
        if _is_by_nature(name):
            own[name] = _shown(name, value)
        elif _is_allowed(name) and not name.startswith("NCCL_"):
            variables[name] = put(_shown(name, value))
    settings, files, errors = ncclsettings.in_effect(context)
    nccl = {
        name: {"value": put(_shown(name, value)), "origin": origin}
        for name, (value, origin) in sorted(settings.items())
        if not _is_by_nature(name)
    }
    notes: Dict[str, Any] = {"variables": own, "nccl_files": files}
    return Answer("partial" if errors else "ok", {"variables": variables, "nccl": nccl}, notes, errors)


def _shown(name: str, value: str) -> str:
    if is_secret_name(name):
        return SECRET
    if len(value) > _MAX_VALUE:
        value = value[:_MAX_VALUE] + f"... ({len(value)} characters)"
    return clean(value)
