"""A command line is kept without its secrets, and otherwise as it is."""

from __future__ import annotations

import shlex
import time

import pytest

from envaudit.cli.commandline import clean_command

SECRET = "Zq9xW3vB7n"


@pytest.mark.parametrize(
    "command",
    [
        *("--token SECRET", "--token=SECRET", "-token SECRET", "--token -SECRET", "--wandb_api_key=SECRET"),
        *("--pass SECRET", "--db-pwd SECRET", "--pw=SECRET", "--creds SECRET", "--bearer SECRET"),
        *("WANDB_API_KEY=SECRET", "++hf.token=SECRET", "wandb.api_key=SECRET", "'trainer.secret: SECRET'"),
        *("curl -u alice:SECRET", "curl --proxy-user alice:SECRET", "curl -H 'X-Api-Key: SECRET'"),
        *("curl -H 'Authorization: Bearer SECRET'", "curl '--header=Authorization: Basic SECRET'"),
        *("sshpass -p SECRET ssh h", "/usr/bin/mysql -pSECRET", "docker login -u alice -p SECRET"),
        *("git clone https://u:SECRET@h/x", "x --dsn=redis://:SECRET@h:1/0", "'https://h/x?sig=SECRET&a=1'"),
        *("sh -c 'export HF_TOKEN=SECRET; python t.py'", """sh -c 'WANDB_KEY="SECRET" python'"""),
        *("""sh -c "t.py --password 'SECRET b'" """, """python -c "login(key='SECRET')" """),
        *("""--set '{"token": "SECRET"}'""", """python -c "os.environ['MY_KEY'] = 'SECRET'" """),
    ],
)
def test_command_line_loses_its_secret_in_every_usual_spelling(command: str) -> None:
    """What stays beside it says that there was one."""
    shown = clean_command(shlex.split(command.replace("SECRET", SECRET)))
    assert SECRET not in shown
    assert "<secret>" in shown or "://" in shown


@pytest.mark.parametrize("command", ["--password 12345678", "--token 12345678", "--db-secret=1234"])
def test_command_line_loses_a_password_of_digits(command: str) -> None:
    """A count never follows these names."""
    assert "1234" not in clean_command(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node 8 train.py --max-tokens 512 --key-dim=64 --tokenizer gpt2 --lr 1e-4",
        "docker run -u 1000:1000 image",
        "python -m compass --path /data --bypass yes --monkey=3 -p 8080",
        "train.py data.split=train 'a b' --note 'basic config'",
    ],
)
def test_command_line_without_a_secret_stays_as_it_is(command: str) -> None:
    """`--max-tokens` is a count, `--path` and `--bypass` hold no password."""
    assert command == clean_command(shlex.split(command))


def test_command_line_of_megabytes_is_cut_and_takes_no_time() -> None:
    """Whatever a job array or a script in one word makes of it."""
    for argv in (
        ["a" * 2_000_000],
        ["a=b " * 500_000],
        ["x"] * 200_000,
        ["key='" * 100_000],
        ['--token "' * 9000],
    ):
        began = time.process_time()
        assert len(clean_command(argv)) <= 4099
        assert time.process_time() - began < 1
