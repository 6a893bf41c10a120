"""The gate inside a launch: one verdict for all ranks, and a line from each healthy node."""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from envaudit.cli import compiled, compiling, gatemeeting, inbandcheck
from envaudit.cli.gatemeeting import Attendant, Gathering, let_leave
from envaudit.cli.seat import seat_of_environment
from envaudit.control.client import Client, connect
from envaudit.control.hub import Hub, listen
from envaudit.model import Section
from envaudit.model.codec import SECTION_SCHEMAS
from envaudit.transport.bundle import build_bundle
from tests.transport.asking import interpreters

_FOUND = interpreters("3.8", "3.13") or [sys.executable]
PYTHONS = sorted({_FOUND[0], _FOUND[-1]})
TORCHRUN = shutil.which("torchrun", path=os.path.dirname(sys.executable))
# What is true of the machine that runs the tests, and is about nothing that they test.
POLICY = "".join(
    f'[rules.{rule}]\nseverity = "off"\n' for rule in ("EA126", "EA127", "EA128", "EA153", "EA154", "EA473")
)


@pytest.fixture(scope="module")
def one_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one-file form with a policy that this machine passes."""
    folder = tmp_path_factory.mktemp("gate")
    (folder / "policy.toml").write_text(POLICY)
    path = folder / "envaudit.pyz"
    path.write_bytes(build_bundle({compiled.POLICY: compiling.compile_policy(str(folder / "policy.toml"))}))
    return path


class Launch:
    """Ranks of one launch, as torchrun starts them on one machine."""

    def __init__(self, one_file: Path, count: int, python: str, *words: str) -> None:
        self.processes: dict[int, subprocess.Popen[str]] = {}
        self._one_file = one_file
        self._count = count
        self._python = python
        self._words = words
        self._port = _free_port()

    def start(
        self, rank: int, variables: Mapping[str, str] | None = None, one_file: Path | None = None
    ) -> None:
        """One rank, perhaps of another one-file form than the others."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": self._count, "LOCAL_WORLD_SIZE": self._count}
        environ.update({name: str(value) for name, value in place.items()})
        environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self._port), OMP_NUM_THREADS="1")
        environ.update(variables or {})
        self.processes[rank] = subprocess.Popen(
            [self._python, str(one_file or self._one_file), "gate", *self._words],
            cwd=self._one_file.parent,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_members(self, count: int) -> None:
        """Until so many ranks, the first among them, hold a connection to the hub."""
        launch = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_PORT": str(self._port)}
        place = seat_of_environment(launch, argparse.Namespace())
        assert place is not None
        port = f":{place.port:04X}"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            # proc(5): local address, remote address, state; 01 is an established connection.
            rows = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            if sum(local.endswith(port) and state == "01" for local, _, state in rows) >= count:
                return
            time.sleep(0.05)
        raise AssertionError("not all came to the hub")

    def end(self) -> dict[int, tuple[int, str, str]]:
        """Code, output and errors of each."""
        ended = {}
        for rank, process in self.processes.items():
            out, err = process.communicate(timeout=120)
            ended[rank] = (process.returncode, out, err)
        return ended


@pytest.fixture
def launches() -> Iterator[list[Launch]]:
    """Launches whose processes are ended with the test."""
    made: list[Launch] = []
    yield made
    for launch in made:
        for process in launch.processes.values():
            if process.poll() is None:
                process.kill()
                process.communicate()


@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.split("/")[-3])
def test_ranks_of_a_healthy_launch_all_pass_and_the_first_prints(
    one_file: Path, launches: list[Launch], python: str
) -> None:
    """One of them has read the machine; all of them end with 0."""
    launch = Launch(one_file, 3, python, "--no-check", "--verdict-file", "verdict")
    launches.append(launch)
    for rank in range(3):
        launch.start(rank)
    ended = launch.end()
    assert [0, 0, 0] == [code for code, _, _ in ended.values()], ended
    assert ended[0][1].rstrip("\n").rpartition("\n")[2].startswith("PASS 1 node"), ended
    assert ["", ""] == [out for rank, (_, out, _) in ended.items() if rank]
    assert (one_file.parent / "verdict").read_text() == f"{ended[0][1].rstrip().rpartition(chr(10))[2]}\n"


@pytest.mark.parametrize("nodes", [2, 1])
def test_batch_script_without_srun_says_that_it_looks_at_one_node(
    one_file: Path, launches: list[Launch], nodes: int
) -> None:
    """One node's pass is not that of the job."""
    launches.append(Launch(one_file, 1, sys.executable, "--no-check"))
    launches[0].start(0, {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_PROCID": "0", "SLURM_NTASKS": str(nodes)})
    code, out, _ = launches[0].end()[0]
    assert (0, nodes > 1) == (code, "this one alone of the 2 of the job" in out)


@pytest.mark.parametrize(
    ("name", "code", "told"),
    [
        ("checks", 3, "EA902"),
        ("git", 3, "git is required, and there is none"),
        ("chekcs", 2, "no section is called 'chekcs'"),
    ],
)
def test_section_that_is_required_and_not_there_is_no_pass(
    one_file: Path, name: str, code: int, told: str
) -> None:
    """Not run, not there, or not the name of anything."""
    argv = [sys.executable, str(one_file), "gate", "--no-check", "--require", name]
    done = subprocess.run(argv, cwd=one_file.parent, capture_output=True, text=True, timeout=60)
    assert code == done.returncode, done.stdout + done.stderr
    assert told in done.stdout + done.stderr


def test_rank_that_never_comes_makes_all_others_incomplete(one_file: Path, launches: list[Launch]) -> None:
    """It is named, and so is who was there."""
    launch = Launch(one_file, 3, sys.executable, "--no-check", "--join", "3", "--format", "json")
    launches.append(launch)
    launch.start(0)
    launch.start(1)
    ended = launch.end()
    assert [3, 3] == [code for code, _, _ in ended.values()], ended
    document = json.loads(ended[0][1])
    assert ["rank2"] == list(document["missing"])
    assert [["rank2"]] == [finding["nodes"] for finding in document["findings"] if finding["rule"] == "EA901"]


def test_ranks_of_different_one_file_forms_come_to_no_verdict(
    one_file: Path, launches: list[Launch], tmp_path: Path
) -> None:
    """A stale file on one node, perhaps the first one's, whose lock and policy all would be held to."""
    stale = tmp_path / "envaudit.pyz"
    stale.write_bytes(build_bundle())
    launch = Launch(one_file, 2, sys.executable, "--no-check")
    launches.append(launch)
    launch.start(0, one_file=stale)
    launch.start(1)
    ended = launch.end()
    assert [2, 2] == [code for code, _, _ in ended.values()], ended
    assert "would judge by something else than the first process (version" in ended[0][2]
    assert "PASS" not in ended[0][1]


def test_rank_that_is_killed_while_all_meet_is_told_by_the_others(
    one_file: Path, launches: list[Launch]
) -> None:
    """The first rank goes: nobody waits for a verdict that will not come."""
    verdict = one_file.parent / "earlier"
    verdict.write_text("PASS 2 nodes, alike\n", encoding="utf-8")
    launch = Launch(one_file, 3, sys.executable, "--no-check", "--join", "30", "--verdict-file", str(verdict))
    launches.append(launch)
    for rank in (0, 1):
        launch.start(rank)
    # Both come to the hub and wait for the third.
    launch.wait_for_members(2)
    time.sleep(1)  # for their first words
    launch.processes[0].kill()
    ended = launch.end()
    assert 3 == ended[1][0], ended
    assert "no verdict was told" in ended[1][2]
    # Nor is that of an earlier launch taken for it.
    assert not verdict.exists()


def test_first_rank_that_cannot_write_ends_all_with_its_code(one_file: Path, launches: list[Launch]) -> None:
    """The others do not wait for it, and do not pass."""
    launch = Launch(one_file, 2, sys.executable, "--no-check", "--verdict-file", "/no/such/folder/verdict")
    launches.append(launch)
    launch.start(0)
    launch.start(1)
    ended = launch.end()
    assert [5, 5] == [code for code, _, _ in ended.values()], ended
    assert "/no/such/folder" in ended[0][2]


@pytest.mark.parametrize(
    "words", [["--bad-nodes", "bad"], ["--suggest", "slurm"], ["--nodes", "n1"], ["--config", "x.toml"]]
)
def test_option_of_the_controller_is_refused_and_not_left_out(one_file: Path, words: list[str]) -> None:
    """Nobody waits for a file that is never written."""
    done = subprocess.run(
        [PYTHONS[0], str(one_file), "gate", "--no-check", *words],
        cwd=one_file.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert 2 == done.returncode
    assert words[0] in done.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: nox -s checks")
def test_ranks_run_kernels_and_collectives_in_the_same_meeting(
    one_file: Path, launches: list[Launch]
) -> None:
    """What a small plan comes to on two ranks; numbers and collectives are in one report."""
    words = ("--ops", "gemm/fp32/*,all_reduce/sum/fp32/*", "--sizes", "3", "--format", "json")
    launch = Launch(one_file, 2, sys.executable, *words)
    launches.append(launch)
    launch.start(0)
    launch.start(1)
    ended = launch.end()
    assert [0, 0] == [code for code, _, _ in ended.values()], ended
    document = json.loads(ended[0][1])
    (ranks,) = [stage["text"] for stage in document["stages"] if stage["name"] == "ranks"]
    assert ranks == "done, 2 collectives of 2 ranks", document
    (device,) = [row for rows in document["checks"].values() for row in rows.values()]
    assert {"ok"} == {case["status"] for case in device["cases"].values()}


@pytest.mark.skipif(TORCHRUN is None, reason="no torchrun beside the interpreter")
def test_torchrun_of_a_healthy_machine_ends_with_0(one_file: Path) -> None:
    """The real launcher."""
    assert TORCHRUN is not None
    done = _launched([TORCHRUN, "--nproc-per-node=2", "--master-port", str(_free_port())], one_file)
    assert 0 == done.returncode, done.stderr
    assert "PASS 1 node" in done.stdout


@pytest.mark.parametrize("variables", [{"TORCHELASTIC_RUN_ID": "none"}, {}])
def test_rank_that_torchrun_ends_says_what_that_means(
    one_file: Path, launches: list[Launch], variables: dict[str, str]
) -> None:
    """Because another one has ended, of which this one knows nothing yet."""
    launch = Launch(one_file, 2, sys.executable, "--no-check")
    launches.append(launch)
    launch.start(0, variables)
    launch.wait_for_members(1)
    launch.processes[0].terminate()
    code, _, complaint = launch.end()[0]
    told = "envaudit: interrupted. torchrun ends all ranks where one has ended, and names that one.\n"
    assert (130, told if variables else "envaudit: interrupted.\n") == (code, complaint)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_mpirun_of_a_healthy_machine_ends_with_0(one_file: Path) -> None:
    """Another real launcher."""
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", sys.executable]
    done = _launched(words, one_file, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
    assert 0 == done.returncode, done.stderr
    assert "PASS 1 node" in done.stdout


def _launched(words: list[str], one_file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*words, str(one_file), "gate", "--no-check"],
        cwd=one_file.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# What nodes tell each other, without the nodes.


def _sections(**changed: object) -> dict[str, Section]:
    """The sections of a node, each with some bulk; `gpu="other"` is a node whose section gpu differs."""
    return {
        name: Section(name, 1, "ok", {"words": ["bulk"] * 400, "value": str(changed.get(name, "same"))})
        for name in sorted(SECTION_SCHEMAS)
    }


class Meeting:
    """Some nodes at one hub, each a thread that attends; the hub's side is the test's."""

    def __init__(self, *nodes: dict[str, Section], notable: tuple[str, ...] = ()) -> None:
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        self.hub = Hub(listener, len(nodes))
        self.codes: dict[int, int] = {}
        self._threads = [
            threading.Thread(target=self._attend, args=(index, sections, notable if index else ()))
            for index, sections in enumerate(nodes)
        ]
        for thread in self._threads:
            thread.start()
        assert [] == self.hub.join(30)

    def _attend(self, index: int, sections: dict[str, Section], notable: tuple[str, ...]) -> None:
        with connect("127.0.0.1", self.port, b"", index, f"node{index}", {"reads": True}, 30) as client:
            attendant = Attendant(client, {})
            attendant.tell(gatemeeting.READ, sections, notable, "2026-11-30T10:00:00Z")
            self.codes[index] = attendant.attend(lambda collectives: None).code

    def close(self) -> None:
        """Until all have left."""
        self.hub.close()
        for thread in self._threads:
            thread.join(30)


def test_healthy_nodes_say_less_than_a_kilobyte_beyond_the_hello() -> None:
    """Digests alone: nothing is asked for of who is like the first node."""
    same = _sections()
    meeting = Meeting(same, _sections(), _sections())
    greeted = {index: member.received_bytes for index, member in meeting.hub.members.items()}
    gathering = Gathering(meeting.hub, same.values(), "1")
    gathering.gather(30)
    nodes, missing = gathering.fingerprints()
    let_leave(meeting.hub, 0, "PASS")
    said = [meeting.hub.members[index].received_bytes - greeted[index] for index in (1, 2)]
    whole = {index: member.received_bytes for index, member in meeting.hub.members.items()}
    meeting.close()
    assert (0, {}) == (gathering.asked, missing)
    assert 1 == len({each.digest for each in nodes})
    assert max(said) <= 1024, said
    # The hello, too, is small.
    assert max(whole.values()) <= 2048, whole
    assert {0: 0, 1: 0, 2: 0} == meeting.codes


def test_section_that_differs_is_asked_for_once_of_all_that_have_it() -> None:
    """Two nodes with another driver: one of them tells it."""
    same = _sections()
    meeting = Meeting(same, _sections(gpu="other"), _sections(gpu="other"), _sections(torch="third"))
    gathering = Gathering(meeting.hub, same.values(), "1")
    gathering.gather(30)
    nodes, missing = gathering.fingerprints()
    let_leave(meeting.hub, 1, "FAIL")
    meeting.close()
    assert ({}, 2) == (missing, gathering.asked)
    assert ["same", "other", "other", "same"] == [each.sections["gpu"].facts["value"] for each in nodes]
    assert "third" == nodes[3].sections["torch"].facts["value"]
    assert {0: 1, 1: 1, 2: 1, 3: 1} == meeting.codes


def test_section_of_which_a_node_s_own_rules_speak_comes_with_its_notes() -> None:
    """Its digest is like the others'; what is wrong may stand in a note."""
    same = _sections()
    hot = {**_sections(), "gpu": replace(same["gpu"], notes={"temperature_c": 99})}
    meeting = Meeting(same, hot, notable=("gpu",))
    gathering = Gathering(meeting.hub, same.values(), "1")
    gathering.gather(30)
    nodes, _ = gathering.fingerprints()
    let_leave(meeting.hub, 0, "")
    meeting.close()
    assert {"temperature_c": 99} == nodes[1].sections["gpu"].notes


def test_large_section_is_told_in_parts() -> None:
    """Beyond a message's limit."""
    same = _sections()
    noise = [os.urandom(500).hex() for _ in range(2000)]
    large = {**_sections(), "packages": Section("packages", 1, "ok", {"noise": noise})}
    meeting = Meeting(same, large)
    gathering = Gathering(meeting.hub, same.values(), "1")
    gathering.gather(30)
    nodes, missing = gathering.fingerprints()
    let_leave(meeting.hub, 0, "")
    meeting.close()
    assert {} == missing
    assert noise == nodes[1].sections["packages"].facts["noise"]


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"sections": {"gpu": "x"}},
        {"sections": [1], "notable": [], "captured_at": ""},
        {"sections": {"gpu": None}, "notable": 3, "captured_at": ""},
    ],
)
def test_node_that_says_nonsense_is_missing_and_costs_nobody_else(body: Any) -> None:
    """What a node sends is not believed to have any shape."""
    hub = Hub(listen("127.0.0.1", 0), 2)
    port = hub._listener.getsockname()[1]
    joined = threading.Thread(target=hub.join, args=(30,))
    joined.start()
    facts = {"reads": True}
    good = connect("127.0.0.1", port, b"", 0, "good", facts, 30)
    bad = connect("127.0.0.1", port, b"", 1, "bad", facts, 30)
    joined.join()
    with good, bad:
        same = _sections()
        good.send(gatemeeting.READ, gatemeeting.said_of(same, (), "2026-11-30T10:00:00Z"))
        bad.send(gatemeeting.READ, body)
        gathering = Gathering(hub, same.values(), "1")
        gathering.gather(5)
        nodes, missing = gathering.fingerprints()
    hub.close(0)
    assert ["good"] == [each.node for each in nodes]
    assert "corrupt" == missing["bad"].kind


@contextmanager
def two_at_a_hub(*reads: bool) -> Iterator[tuple[Hub, Client, Client]]:
    """A hub with two members, and who of them has read its node."""
    hub = Hub(listen("127.0.0.1", 0), 2)
    port = hub._listener.getsockname()[1]
    joined = threading.Thread(target=hub.join, args=(30,))
    joined.start()
    first = connect("127.0.0.1", port, b"", 0, "n0", {"reads": reads[0]}, 30)
    second = connect("127.0.0.1", port, b"", 1, "n1", {"reads": reads[1]}, 30)
    joined.join()
    with first, second:
        yield hub, first, second
    hub.close(0)


def test_roads_of_all_processes_are_heard_of_those_that_read_no_node_too() -> None:
    """Each rank's NCCL writes where its own process finds it."""
    with two_at_a_hub(True, False) as (hub, first, second):
        gathering = Gathering(hub, _sections().values(), "1")
        gathering.expect_roads()
        for rank, member in enumerate((first, second)):
            Attendant(member, {}).tell_road({str(rank): {"network": "Socket"}, "x": {}})
        first.send(gatemeeting.CHECKED, gatemeeting.said_of(_sections(), (), "2026-11-30T10:00:00Z"))
        gathering.gather(30, gatemeeting.CHECKED)
    assert {"0": {"network": "Socket"}, "1": {"network": "Socket"}} == gathering.roads


@pytest.mark.parametrize("rows", [None, 3, {"0": 1}, {"a": {}}])
def test_roads_that_are_none_are_left_out(rows: Any) -> None:
    """What a process sends is not believed to have any shape."""
    with two_at_a_hub(True, False) as (hub, first, second):
        gathering = Gathering(hub, _sections().values(), "1")
        gathering.expect_roads()
        second.send(gatemeeting.ROAD, {"rows": rows})
        first.send(gatemeeting.ROAD, rows)
        first.send(gatemeeting.CHECKED, gatemeeting.said_of(_sections(), (), "2026-11-30T10:00:00Z"))
        gathering.gather(30, gatemeeting.CHECKED)
    assert {} == gathering.roads


def test_process_that_tells_its_road_again_and_again_holds_nobody() -> None:
    """It is heard once: whoever can reach a hub without a token could fill its memory, too."""
    with two_at_a_hub(True, False) as (hub, _silent, talks):
        gathering = Gathering(hub, _sections().values(), "1")
        gathering.expect_roads()
        with _saying(talks, gatemeeting.ROAD, lambda number: {"rows": {str(number): {}}}):
            began = time.monotonic()
            gathering.gather(1, gatemeeting.CHECKED)
            took_s = time.monotonic() - began
        _, missing = gathering.fingerprints()
    assert ({"0": {}}, ["n0"]) == (gathering.roads, list(missing))
    assert took_s < 4


def test_node_that_tells_one_part_again_and_again_holds_nobody() -> None:
    """A section has each of its parts once."""
    with two_at_a_hub(False, True) as (hub, _first, talks):
        gathering = Gathering(hub, (), "1")
        talks.send(gatemeeting.READ, gatemeeting.said_of(_sections(), (), "2026-11-30T10:00:00Z"))
        part = {"name": "gpu", "number": 0, "of": 2, "text": "x"}
        with _saying(talks, gatemeeting.PART, lambda number: part):
            began = time.monotonic()
            gathering.gather(1)
            took_s = time.monotonic() - began
        _, missing = gathering.fingerprints()
    assert "a part for the second time" in missing["n1"].why
    assert took_s < 4


@pytest.mark.parametrize("said", [b"[" * 100_000, b'{"facts": ' + b"9" * 100_000 + b"}"])
def test_section_that_is_none_costs_its_node_alone(said: bytes) -> None:
    """What arrives deflated is read with the bounds of any other answer of a node."""
    with two_at_a_hub(False, True) as (hub, _first, talks):
        gathering = Gathering(hub, (), "1")
        talks.send(gatemeeting.READ, gatemeeting.said_of(_sections(), (), "2026-11-30T10:00:00Z"))
        text = base64.b64encode(zlib.compress(said)).decode("ascii")
        talks.send(gatemeeting.PART, {"name": "gpu", "number": 0, "of": 1, "text": text})
        gathering.gather(5)
        _, missing = gathering.fingerprints()
    assert "corrupt" == missing["n1"].kind


def test_node_that_tells_more_than_a_node_has_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its sections is small enough; all of them together are not."""
    monkeypatch.setattr(gatemeeting, "_MAX_NODE_BYTES", 20_000)
    meeting = Meeting(_sections(), _sections(**dict.fromkeys(SECTION_SCHEMAS, "other")))
    gathering = Gathering(meeting.hub, _sections().values(), "1")
    gathering.gather(30)
    _, missing = gathering.fingerprints()
    let_leave(meeting.hub, 3, "")
    meeting.close()
    assert ["node1"] == list(missing)
    assert "corrupt" == missing["node1"].kind


@contextmanager
def _saying(client: Client, kind: str, body_of: Callable[[int], Any]) -> Iterator[None]:
    """Says something five times a second, for five seconds or until this is over."""
    over = threading.Event()

    def say() -> None:
        for number in range(25):
            client.send(kind, body_of(number))
            if over.wait(0.2):
                return

    talking = threading.Thread(target=say)
    talking.start()
    try:
        yield
    finally:
        over.set()
        talking.join()


def test_node_that_is_not_heard_at_all_is_given_up_long_before_its_time() -> None:
    """A stopped process neither works nor beats; one that works beats, however long it takes."""
    with two_at_a_hub(True, True) as (hub, works, _stopped):
        gathering = Gathering(hub, _sections().values(), "1")
        over = threading.Event()

        def work() -> None:
            for _ in range(20):
                works.beat()
                time.sleep(0.2)
            works.send(gatemeeting.CHECKED, gatemeeting.said_of(_sections(), (), "2026-11-30T10:00:00Z"))
            over.wait(30)

        working = threading.Thread(target=work)
        working.start()
        began = time.monotonic()
        gathering.gather(60, gatemeeting.CHECKED, silence_s=2.0)
        took_s = time.monotonic() - began
        over.set()
        working.join()
        nodes, missing = gathering.fingerprints()
    assert (["n0"], ["n1"]) == ([each.node for each in nodes], list(missing))
    assert "it was not heard for 2 s" == missing["n1"].why
    assert took_s < 30


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["localhost", "localhost"], ["localhost", "localhost:1"]),
        (["n", "n:2", "n"], ["n", "n:2", "n:2:2"]),
        (["n1,n2", "n[1-9]", "\x1b[31m"], ["rank0", "rank1", "rank2"]),
    ],
)
def test_nodes_are_told_apart_whatever_they_call_themselves(names: list[str], labels: list[str]) -> None:
    """Two machines that both call themselves localhost are two nodes; a set of nodes is none."""
    hub = Hub(listen("127.0.0.1", 0), len(names))
    port = hub._listener.getsockname()[1]
    joined = threading.Thread(target=hub.join, args=(30,))
    joined.start()
    with ExitStack() as stack:
        for index, name in enumerate(names):
            stack.enter_context(connect("127.0.0.1", port, b"", index, name, {"reads": True}, 30))
        joined.join()
        found = [node.label for node in Gathering(hub, (), "1").nodes.values()]
    hub.close(0)
    assert labels == found


def test_process_of_a_check_that_gives_no_node_s_name_is_missing() -> None:
    """What it should have said is no evidence."""
    snapshot = inbandcheck._snapshot({0: {"node": "n0", "sections": []}, 1: {"node": "n1,n2"}, 2: None}, {})
    assert (["n0"], ["rank1", "rank2"]) == (
        [each.node for each in snapshot.fingerprints],
        list(snapshot.missing),
    )


def _free_port() -> int:
    """A port that is free, and so is the one above it, where the hub will listen."""
    while True:
        with socket.socket() as first, socket.socket() as above:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                above.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            return port
