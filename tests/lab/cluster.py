"""The cluster: nodes node01..nodeNN on a bridge of their own, reachable through one ssh_config.

Nothing of the machine is changed but for a bridge, its cables and a folder, all of which go when
the cluster goes down; what a killed controller left is removed by the next `up`. Names and subnet
are chosen so that several labs stand side by side.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
from types import TracebackType
from typing import Dict, List, Mapping, Sequence

from tests.lab import leftovers
from tests.lab.node import LabError, Node, Place, base_python

# 10.64.0.0 to 10.127.255.0, one /24 a lab.
_SUBNETS = 64 * 256
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Debian's default key exchange costs about 0.1 s of processor time a connection.
_SSH_CONFIG = """\
Host *
  User root
  IdentityFile {lab}/id
  IdentitiesOnly yes
  IdentityAgent none
  StrictHostKeyChecking yes
  UserKnownHostsFile {lab}/known_hosts
  GlobalKnownHostsFile /dev/null
  BatchMode yes
  KexAlgorithms curve25519-sha256
  ConnectTimeout 3
"""

_ENTER = """\
#!/bin/sh
# enter NODE ARGV...: runs ARGV on the node without ssh, with the node's environment and nothing else.
here={lab}/nodes/$1
shift
exec nsenter --target "$(cat "$here/init.pid")" --net --uts --mount --pid --ipc -- \\
  /usr/bin/env -i /bin/sh -c '. "$0"; exec "$@"' "$here/environ.sh" "$@"
"""


class Cluster:
    """A lab cluster, used as a context manager or through `up` and `down`.

    Args:
        nodes: how many, from 1 to 99.

    Attributes:
        folder: the lab's folder, at the same path on every node.
        environment_path: a virtual environment of the machine's Python, first on the nodes' PATH.
    """

    def __init__(self, nodes: int = 4) -> None:
        self.names = [f"node{number:02d}" for number in range(1, nodes + 1)]
        self.folder = ""
        self.nodes: Dict[str, Node] = {}
        self._bridge = ""
        self._subnet = ""

    # Paths

    @property
    def ssh_config(self) -> str:
        """The ssh client configuration that reaches every node."""
        return os.path.join(self.folder, "ssh_config")

    @property
    def environment_path(self) -> str:
        """The nodes' shared Python environment; its bin folder leads their PATH."""
        return os.path.join(self.folder, "env")

    @property
    def python(self) -> str:
        """The nodes' Python, the same path on each."""
        return os.path.join(self.environment_path, "bin", "python3")

    @property
    def enter_command(self) -> str:
        """A command template for the exec transport that reaches a node without ssh."""
        return f"{self.folder}/bin/enter {{node}} {{python}}"

    # Up and down

    def __enter__(self) -> Cluster:
        """Brings the cluster up."""
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Takes it down, whatever happened."""
        self.down()

    def up(self) -> None:
        """Starts all nodes; returns when each one's sshd listens.

        Raises:
            LabError: something did not start; what had started is ended.
        """
        leftovers.sweep()
        self.folder = leftovers.new_folder()
        atexit.register(self.down)
        try:
            self._write_shared_files()
            self._bridge, self._subnet = self._claim_bridge()
            self._start(self.names)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Ends all nodes and removes everything; does nothing where there is nothing."""
        atexit.unregister(self.down)
        for node in self.nodes.values():
            node.end()
        self.nodes = {}
        if self._bridge:
            leftovers.remove_bridge(self._bridge)
            self._bridge = ""
        if self.folder:
            shutil.rmtree(self.folder)
            self.folder = ""

    def add_node(self, name: str) -> Node:
        """One more machine, such as a head node for services; it is not among `names`."""
        self._start([name])
        return self.nodes[name]

    # Reaching nodes

    def node(self, name: str) -> Node:
        """A node by its name."""
        return self.nodes[name]

    def ssh(self, name: str, command: str, timeout_s: float = 20.0) -> subprocess.CompletedProcess[str]:
        """Runs a shell command on a node through ssh."""
        return subprocess.run(
            ["ssh", "-F", self.ssh_config, name, command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def netns(self, name: str) -> str:
        """The name under which `ip netns exec` finds the node's network; given away at `down`.

        `ip netns exec` enters the network only: files, host name and processes stay the machine's.
        """
        label = f"{self._bridge}-{name}"
        if not os.path.exists(f"/run/netns/{label}"):
            _run(["ip", "netns", "attach", label, str(self.nodes[name].pid)])
        return label

    @property
    def netns_prefix(self) -> str:
        """What stands before a node's name in its `netns` name."""
        return f"{self._bridge}-"

    def set_environment(self, variables: Mapping[str, str]) -> None:
        """Variables that every node has from now on, through ssh and `enter`."""
        for name in self.names:
            self.nodes[name].environment.update(variables)
            self.nodes[name].restart_sshd()

    # Parts of `up`

    def _write_shared_files(self) -> None:
        for name in ("nodes", "bin", "home", "etc", "cgroup"):
            os.mkdir(os.path.join(self.folder, name))
        self._write("home/.bashrc", "")
        self._write("bin/enter", _ENTER.format(lab=self.folder), mode=0o755)
        for key in ("id", "hostkey"):
            _run(
                [
                    "ssh-keygen",
                    "-q",
                    "-t",
                    "ed25519",
                    "-N",
                    "",
                    "-C",
                    "lab",
                    "-f",
                    os.path.join(self.folder, key),
                ]
            )
        self._write("authorized_keys", self._read("id.pub"))
        self._write("known_hosts", "* " + self._read("hostkey.pub"))
        _run([base_python(), "-m", "venv", "--without-pip", self.environment_path])

    def _claim_bridge(self) -> tuple[str, str]:
        """Adds a bridge under a name nobody has; the kernel decides between two labs that try the same."""
        taken = _addresses()
        for attempt in range(64):
            number = (os.getpid() + attempt * 251) % _SUBNETS
            bridge, subnet = f"eab{number}", f"10.{64 + number // 256}.{number % 256}"
            if any(address.startswith(subnet + ".") for address in taken):
                continue
            leftovers.write_state(self.folder, bridge=bridge, inits=())
            added = subprocess.run(
                ["ip", "link", "add", bridge, "type", "bridge"], capture_output=True, check=False, timeout=10
            )
            if added.returncode == 0:
                _run(["ip", "addr", "add", f"{subnet}.254/24", "dev", bridge])
                _run(["ip", "link", "set", bridge, "up"])
                return bridge, subnet
        raise LabError("no free bridge name and subnet in 64 tries")

    def _start(self, names: Sequence[str]) -> None:
        nodes = [Node(self._place(name), self._base_environment()) for name in names]
        self.nodes.update((node.name, node) for node in nodes)
        self._write("ssh_config", self._ssh_config_text())
        hosts = self._hosts()
        for node in nodes:
            node.begin(hosts)
        for node in nodes:
            node.settle()
        inits = [node.identity for node in self.nodes.values() if node.pid]
        leftovers.write_state(self.folder, bridge=self._bridge, inits=inits)
        self._plug_in(nodes)
        for node in nodes:
            node.send("network", address=f"{node.place.address}/24", gateway=node.place.gateway)
            node.send("start_sshd")
        for node in nodes:
            node.await_answer()
            node.await_answer()

    def _plug_in(self, nodes: Sequence[Node]) -> None:
        lines = []
        for node in nodes:
            lines.append(f"link add {node.place.cable} type veth peer name eth0 netns {node.pid}")
            lines.append(f"link set {node.place.cable} master {self._bridge} up")
        _run(["ip", "-batch", "-"], text="\n".join(lines) + "\n")

    def _place(self, name: str) -> Place:
        number = self.names.index(name) + 1 if name in self.names else 200 + len(self.nodes)
        return Place(
            lab=self.folder,
            name=name,
            address=f"{self._subnet}.{number}",
            gateway=f"{self._subnet}.254",
            cable=f"{self._bridge}n{number}",
        )

    def _base_environment(self) -> Dict[str, str]:
        return {
            "PATH": f"{self.environment_path}/bin:{_SYSTEM_PATH}",
            "HOME": os.path.join(self.folder, "home"),
            "LANG": "C.UTF-8",
        }

    def _hosts(self) -> str:
        lines = ["127.0.0.1 localhost", f"{self._subnet}.254 controller"]
        lines += [f"{self._place(name).address} {name}" for name in [*self.names, *self._extra_names()]]
        return "\n".join(lines) + "\n"

    def _extra_names(self) -> List[str]:
        return [name for name in self.nodes if name not in self.names]

    def _ssh_config_text(self) -> str:
        hosts = [f"Host {node.name}\n  HostName {node.place.address}\n" for node in self.nodes.values()]
        return "".join(hosts) + _SSH_CONFIG.format(lab=self.folder)

    def _write(self, name: str, text: str, mode: int = 0o644) -> None:
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(path, mode)

    def _read(self, name: str) -> str:
        with open(os.path.join(self.folder, name), encoding="utf-8") as stream:
            return stream.read()


def _run(argv: Sequence[str], text: str | None = None) -> str:
    """A program of the set-up; raises LabError with its own words."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode != 0:
        raise LabError(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _addresses() -> List[str]:
    interfaces = json.loads(_run(["ip", "-json", "-4", "addr"]))
    return [entry["local"] for interface in interfaces for entry in interface.get("addr_info", [])]
