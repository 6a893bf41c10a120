"""Credentials are gone from what leaves the node, and nothing else is."""

from __future__ import annotations

import re
import string
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envaudit.probe.context import Context
from envaudit.probe.secrets import clean, clean_url, is_secret_name
from envaudit.probe.sections import conda, env, packages

# What a credential is made of. Percent signs are there since passwords in URLs are escaped. No name of a
# variable: hypothesis tries the words of the source too, and a name is shown.
_SECRETS = st.text(string.ascii_letters + string.digits + "-_~%.!$", min_size=12, max_size=40).filter(
    lambda text: len(set(text)) > 6 and not re.fullmatch(r"[A-Z_]+", text)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://alice:hunter2@host/path", "https://host/path"),
        ("https://ghp_0123456789abcdef@host/r.git", "https://host/r.git"),
        ("git+ssh://git@host/r.git@v1", "git+ssh://host/r.git@v1"),
        ("https://host:8443/a@b", "https://host:8443/a@b"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("https://u:p/w@d@host/x", "https://host/x"),
        ("https://conda.host/t/ab-1234-xy/chan", "https://conda.host/t/<secret>/chan"),
        ("token hf_abcdefghijklmnop here", "token <secret> here"),
        ("AKIAIOSFODNN7EXAMPLE", "<secret>"),
        ("--password hunter2 --verbose", "--password <secret> --verbose"),
        ("inst.password=hunter2 quiet", "inst.password=<secret> quiet"),
        ("https://host/x?api_key=abc&v=1", "https://host/x?api_key=<secret>&v=1"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.sig", "<secret>"),
        ("-H Authorization: Bearer Zq9xW3vB7n", "-H Authorization: Bearer <secret>"),
        ("Cookie: session=Zq9xW3vB7n", "Cookie: <secret>"),
        ("X-Api-Key: Zq9xW3vB7n", "X-Api-Key: <secret>"),
        ('{"api_key": "Zq9xW3vB7n", "a": 1}', '{"api_key": <secret>, "a": 1}'),
        ("os.environ['HF_TOKEN'] = 'Zq9x W3'", "os.environ['HF_TOKEN'] = <secret>"),
        ("--password 'Zq9x W3vB7n' --lr 1", "--password <secret> --lr 1"),
        ("https://host/x?sig=Zq9xW3vB7n&a=1", "https://host/x?sig=<secret>&a=1"),
        ("https://host/x?key=Zq9xW3vB7n", "https://host/x?key=<secret>"),
        ("AccountKey=Zq9xW3vB7n;x", "AccountKey=<secret>;x"),
        ("nvapi-Zq9xW3vB7nZq9xW3vB7n", "<secret>"),
        ("dckr_pat_Zq9xW3vB7n", "<secret>"),
        ("hvs.Zq9xW3vB7nZq9xW3vB7n", "<secret>"),
        ("xapp-1-Zq9xW3vB7n", "<secret>"),
        ("--monkey=3 nvapi-x", "--monkey=3 nvapi-x"),
        ("the basic training, bearer of news", "the basic training, bearer of news"),
        ("design=3&a", "design=3&a"),
        ("/opt/munge-auth:/usr/lib", "/opt/munge-auth:/usr/lib"),
        ("tokenizers=0.15", "tokenizers=0.15"),
        ("/usr/local/cuda-12.1/lib64:/opt/nccl/lib", "/usr/local/cuda-12.1/lib64:/opt/nccl/lib"),
        ("author=somebody", "author=somebody"),
        ("expandable_segments:True", "expandable_segments:True"),
    ],
)
def test_text_loses_its_secrets_and_nothing_else(text: str, expected: str) -> None:
    """Each known shape of a credential is replaced where it stands."""
    assert expected == clean(text)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://u:p@host/a.whl?X-Amz-Signature=abc#sha256=1", "https://host/a.whl"),
        ("https://u:p?#x@host/a.whl?s=1", "https://host/a.whl"),
        ("https://host/t/tk-12/chan/linux-64", "https://host/chan/linux-64"),
        ("git@host:group/repo.git", "git@host:group/repo.git"),
        ("/srv/repo.git", "/srv/repo.git"),
    ],
)
def test_url_is_reduced_to_the_place_it_names(url: str, expected: str) -> None:
    """User info, tokens, query and fragment of a URL are gone."""
    assert expected == clean_url(url)


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "CUDA_SECRET", "WANDB_API_KEY", "CONDA_PASSWORD", "XLA_AUTH", "MY_CREDENTIALS"]
)
def test_name_of_a_secret_is_known(name: str) -> None:
    """A variable whose name says so is a secret, whatever its value looks like."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["UCX_IB_PKEY", "NCCL_IB_PKEY", "TORCH_TOKENIZERS", "NCCL_ALGO", "CONDA_PREFIX"]
)
def test_name_of_a_setting_is_no_secret(name: str) -> None:
    """A partition key or a tokenizer is a setting that must compare."""
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "unit", ["token", "token=", "a", "x://", "https://a:", "/t/", "--auth ", "eyJ", "-----BEGIN "]
)
def test_endless_repetition_is_cleaned_in_no_time(unit: str) -> None:
    """No value, however it repeats, keeps a section busy."""
    started = time.monotonic()
    clean(unit * (64_000 // len(unit)))
    assert time.monotonic() - started < 2


@settings(max_examples=200, deadline=None)
@given(secret=_SECRETS)
def test_secret_planted_in_variables_never_leaves(secret: str) -> None:
    """No part of a variable that carries a credential by name or in a URL shows it."""
    environ = {
        "HOME": "/home/alice",
        "CUDA_API_TOKEN": secret,
        "CONDA_PASSWORD": f"x{secret}",
        "CONDA_CHANNEL_ALIAS": f"https://alice:{secret}@conda.example/t/{secret}/chan",
        "XLA_FLAGS": f"--xla_dump_to=https://{secret}@host/x --api_key={secret}",
        "HF_HOME": f"/data/hf_{''.join(c for c in secret if c.isalnum())}0123456789",
        "NCCL_NET_SECRET": secret,
        "SLURM_JOB_ID_TOKEN": secret,
    }
    answer = env.read(Context(root="/nowhere", environ=environ, workdir="/", launch="ssh", interpreter={}))
    assert secret not in str(answer)
    assert "hf_" + "".join(c for c in secret if c.isalnum()) not in str(answer)


@settings(max_examples=50, deadline=None)
@given(secret=_SECRETS)
def test_secret_planted_in_a_url_of_a_package_never_leaves(
    tmp_path_factory: pytest.TempPathFactory, secret: str
) -> None:
    """Neither direct_url.json nor conda's channel, URL or history shows a credential."""
    root = tmp_path_factory.mktemp("root")
    info = root / "env" / "lib" / "site-packages" / "x-1.0.dist-info"
    info.mkdir(parents=True)
    url = f"https://alice:{secret}@host/t/{secret}/x.whl?sig={secret}#{secret}"
    (info / "direct_url.json").write_text(f'{{"url": "{url}", "archive_info": {{}}}}')
    meta = root / "env" / "conda-meta"
    meta.mkdir()
    channel = f"https://alice:{secret}@mirror.example/t/{secret}/private/linux-64"
    (meta / "x-1.0-0.json").write_text(
        f'{{"name": "x", "version": "1.0", "build": "0", "channel": "{channel}", "url": "{url}"}}'
    )
    (meta / "history").write_text(
        f"# cmd: conda install -c {channel} --token {secret} x\n# update specs: ['x']\n"
    )
    node = Context(
        root=str(root),
        environ={},
        workdir="/",
        launch="ssh",
        interpreter={"prefix": "/env", "path": ["/env/lib/site-packages"]},
    )
    answers = (packages.read(node), conda.read(node))
    assert ["ok", "ok"] == [answer.status for answer in answers]
    assert "mirror.example/private" == answers[1].facts["packages"]["x"]["channel"]
    assert secret not in str(answers)
