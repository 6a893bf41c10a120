"""Where a hub listens, and names made into addresses within a time."""

from __future__ import annotations

import errno
import os
import queue
import resource
import socket
import threading
import time
from typing import Any, List, NamedTuple, Tuple

from envaudit.control.stream import in_words
from envaudit.errors import NeededError, UsageError

_BACKLOG = 4096
_AGAIN_S = 0.5
# Besides its connections a process has a few files open.
_OTHER_DESCRIPTORS = 64


class Address(NamedTuple):
    """One address of a name: family, and what `bind` and `connect` take."""

    family: int
    sockaddr: Tuple[Any, ...]

    @property
    def is_loopback(self) -> bool:
        """Whether no other machine can reach it."""
        host = str(self.sockaddr[0])
        return host.startswith("127.") or host == "::1"


class NoAddress(Exception):
    """A name that has none (in time)."""


def addresses_of(host: str, port: int, seconds: float) -> List[Address]:
    """All addresses of a name, waiting for it to have one: in a cluster names may come late.

    The system's resolver cannot be told how long to try, so a name is looked up beside, and what is
    not there in time is left behind.

    Raises:
        NoAddress: in words, after `seconds`.
    """
    deadline = time.monotonic() + seconds
    numeric = _lookup(host, port, socket.AI_NUMERICHOST)
    if isinstance(numeric, list):
        return numeric
    while True:
        answer: queue.Queue[Any] = queue.Queue()
        threading.Thread(target=lambda into=answer: into.put(_lookup(host, port, 0)), daemon=True).start()
        try:
            found = answer.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise NoAddress(f"the name was not resolved in {seconds:g} s") from None
        if isinstance(found, list):
            return found
        if time.monotonic() + _AGAIN_S >= deadline:
            raise NoAddress(found)
        time.sleep(_AGAIN_S)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections at a host of this machine.

    Args:
        host: a name or an address; "" for all of them, IPv4 and IPv6.
        port: 0 for a free one, which `getsockname` then tells.

    Raises:
        UsageError: the port is taken or not permitted, or the host is not here.
    """
    where = _option(host, port)
    if not host:
        return _bound(_everywhere(), port, where)
    try:
        found = addresses_of(host, port, 0.0 if _is_numeric(host, port) else 5.0)
    except NoAddress as error:
        raise UsageError(
            f"{host} has no address here", where=where, why=str(error), next_step=_NEXT_STEP
        ) from None
    return _bound(found, port, where)


def listen_for_all(host: str, port: int, *, authenticated: bool) -> socket.socket:
    """A socket that every member of a run can reach under that name.

    With a token it takes connections at every address. Without one it keeps to the address that the
    members were told; only where that name is no address of an interface here (the first node's own
    name is 127.0.1.1 in many an /etc/hosts, a service's is somewhere else) it is every address too.

    Raises:
        UsageError: as `listen`.
    """
    where = _option(host, port)
    if authenticated:
        return _bound(_everywhere(), port, where)
    try:
        found = addresses_of(host, port, 5.0)
    except NoAddress:
        return _bound(_everywhere(), port, where)
    named = not _is_numeric(host, port) and host != "localhost"
    if named and all(address.is_loopback for address in found):
        return _bound(_everywhere(), port, where)
    try:
        return _bound(found, port, where)
    except _NotHere:
        return _bound(_everywhere(), port, where)


def descriptors_for(connections: int, least: int) -> None:
    """Let this process have that many connections, as far as its hard limit on open files allows.

    The soft limit is 1,024 on most machines and is left alone where that is enough.

    Raises:
        NeededError: there are not even so many left: a hub would be there and not answer.
    """
    _raise_soft_limit(connections)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        left = limit - len(os.listdir("/proc/self/fd"))
    except OSError as error:
        left = 0 if error.errno == errno.EMFILE else least
    if limit != resource.RLIM_INFINITY and left < least:
        raise NeededError(
            f"a hub needs {least} open files more, and this process may have {limit} in all",
            next_step="Raise the limit: ulimit -n.",
        )


def _raise_soft_limit(connections: int) -> None:
    wanted = connections + _OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        pass


_NEXT_STEP = "Name another address or port of the first node with --hub HOST:PORT."


class _NotHere(UsageError):
    """The address is none of this machine's."""


def _everywhere() -> List[Address]:
    """IPv6 with IPv4 in it where the kernel has IPv6, else IPv4."""
    found = [Address(socket.AF_INET, ("0.0.0.0", 0))]  # noqa: S104 - what was asked for
    return [Address(socket.AF_INET6, ("::", 0)), *found] if socket.has_ipv6 else found


def _bound(found: List[Address], port: int, where: str) -> socket.socket:
    """A listener at the first of the addresses that there is."""
    failure: OSError = OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    for address in found:
        try:
            listener = socket.socket(address.family, socket.SOCK_STREAM)
        except OSError as error:
            failure = error
            continue
        try:
            # A port that the run before has left is free again at once.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address.family == socket.AF_INET6:
                everywhere = address.sockaddr[0] == "::"
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if everywhere else 1)
            listener.bind((address.sockaddr[0], port, *address.sockaddr[2:]))
            listener.listen(_BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            failure = error
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                break
    raise _refusal(failure, port, where)


def _refusal(failure: OSError, port: int, where: str) -> UsageError:
    if failure.errno == errno.EADDRINUSE:
        return UsageError(f"port {port} is taken", where=where, next_step=_NEXT_STEP)
    if failure.errno == errno.EACCES:
        return UsageError(f"port {port} is not for this user", where=where, next_step=_NEXT_STEP)
    if failure.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return _NotHere("no address of this machine", where=where, next_step=_NEXT_STEP)
    return UsageError("cannot listen", where=where, why=str(failure.strerror), next_step=_NEXT_STEP)


def _option(host: str, port: int) -> str:
    return f"--hub {in_words(host, port)}"


def _is_numeric(host: str, port: int) -> bool:
    return isinstance(_lookup(host, port, socket.AI_NUMERICHOST), list)


def _lookup(host: str, port: int, flags: int) -> Any:
    """The addresses, or in words why there are none."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except OSError as error:
        return f"{host}: {error.strerror or error}"
    except UnicodeError:
        return f"{host!r} is no name of a host"
    return [Address(family, sockaddr) for family, _, _, _, sockaddr in found]
