"""Containers without a container engine: an image's folder, namespaces of the kernel, and `chroot`.

What compose and Kubernetes promise a program is made by hand: a root file system that is read-only,
mounts, an environment, a user without rights, process number 1, and a network of its own, on which
names of services lead to this one machine. Nothing here reaches the network outside.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
_LOOK_S = 0.2
_CLONE_NEWNET = 0x40000000
_CABLE = ("10.0.0.1", "10.0.0.2")  # the addresses of its ends
_DIES_WITH_US = [sys.executable, str(ROOT / "tests" / "broker" / "die_with_parent.py")]


class Network:
    """A network that ends at loopback: what listens on it is reached from nowhere else.

    Parameters
    ----------
    folder : Path
        Where the file of its names is made.
    names : sequence of str
        What else this machine is called on it.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ()) -> None:
        self.hosts = folder / "hosts"
        every = ["localhost", platform.node(), *names]
        self.hosts.write_text(f"127.0.0.1 {' '.join(every)}\n", encoding="utf-8")
        # It lives as long as its input, which ends with us.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"up\n"
        self.path = f"/proc/{self._holder.pid}/ns/net"
        self._thread = ThreadPoolExecutor(1, initializer=self._enter)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown()
        self._holder.communicate()

    def _enter(self) -> None:
        """Move the calling thread, and no other, into this network."""
        number = os.open(self.path, os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(number, _CLONE_NEWNET) == 0
        os.close(number)

    def reach(self, other: Network, names: Sequence[str]) -> None:
        """Lay a cable to another network, as between two pods; here it goes by some names."""
        (own, its), end = _CABLE, f"netns {other._holder.pid}"
        cable = f"ip link add name cable type veth peer name cable {end}"
        for path, address, first in ((self.path, own, cable), (other.path, its, "true")):
            up = f"{first} && ip address add {address}/24 dev cable && ip link set cable up"
            subprocess.run(["nsenter", f"--net={path}", "sh", "-c", up], check=True)
        with self.hosts.open("a", encoding="utf-8") as hosts:
            hosts.write(f"{its} {' '.join(names)}\n")

    def call(self, what: Callable[[], T]) -> T:
        """Return what a function returns that is called inside."""
        return self._thread.submit(what).result()

    def get(
        self, address: str, host: str | None = None, body: bytes | None = None
    ) -> tuple[int, bytes]:
        """Return status and body of an address inside; 0 if nobody answers.

        Parameters
        ----------
        address : str
            The address; its name is looked up outside, so it is a number.
        host : str, optional
            The name by which it is asked.
        body : bytes, optional
            JSON to post there.
        """

        def ask() -> tuple[int, bytes]:
            headers = {"Host": host} if host else {}
            headers |= {"Content-Type": "application/json"} if body is not None else {}
            asked = urllib.request.Request(address, body, headers)
            try:
                with urllib.request.urlopen(asked, timeout=60.0) as answer:
                    return int(answer.status), answer.read()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read()
            except OSError:
                return 0, b""

        return self.call(ask)


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of ours that a container has; without a source an empty one in memory."""

    target: str
    source: Path | None = None
    is_read_only: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a container is made of.

    Attributes
    ----------
    image : Path
        Its root file system.
    command : sequence of str
        What process 1 is.
    environment : mapping of str to str
        All of its variables.
    folder : str
        Where it is started.
    user : str
        `UID:GID`. Root keeps its rights, anybody else has none and can gain none.
    mounts : sequence of Mount
        What lies over the image.
    is_read_only : bool
        Whether the image is.
    """

    image: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str = "/"
    user: str = "0:0"
    mounts: Sequence[Mount] = field(default_factory=tuple)
    is_read_only: bool = False

    def inside(self, command: Sequence[str]) -> list[str]:
        """Return the command that becomes another one inside, as the container's user."""
        uid, _, gid = self.user.partition(":")
        rights = [] if uid == "0" else ["--bounding-set=-all", "--inh-caps=-all"]
        user = [f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", *rights]
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        goes = ["/bin/sh", "-c", 'cd "$0" && exec "$@"', self.folder]
        chroot = str(shutil.which("chroot"))
        return [
            "/usr/bin/env", "-i", chroot, str(self.image),
            "/usr/bin/setpriv", *user,
            "/usr/bin/env", "-i", *variables, *goes, *command,
        ]  # fmt: skip

    def script(self) -> str:
        """Return the shell's lines that mount all and become the command."""
        own = shlex.quote(str(self.image))
        lines = ["set -e", "mount --make-rprivate /", f"mount --bind {own} {own}"]
        if self.is_read_only:
            lines.append(f"mount -o remount,bind,ro {own}")
        lines += [f"mount -t proc proc {own}/proc", f"mount --rbind /dev {own}/dev"]
        for each in self.mounts:
            target = shlex.quote(f"{self.image}{each.target}")
            if each.source is None:
                lines.append(f"mount -t tmpfs -o mode=1777 tmpfs {target}")
                continue
            lines.append(f"mount --bind {shlex.quote(str(each.source))} {target}")
            if each.is_read_only:
                lines.append(f"mount -o remount,bind,ro {target}")
        return "\n".join([*lines, f"exec {shlex.join(self.inside(self.command))}"])


def make_mount_points(plan: Plan) -> None:
    """Make what the mounts lie over, as an engine does before it starts a container."""
    for each in plan.mounts:
        target = Path(f"{plan.image}{each.target}")
        if each.source is not None and each.source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        else:
            target.mkdir(parents=True, exist_ok=True)


class Container:
    """A plan, carried out: it runs until it is stopped, and dies with us.

    Parameters
    ----------
    name : str
        What its log is called.
    plan : Plan
        What it is made of.
    network : Network
        What it is connected to.
    """

    def __init__(self, name: str, plan: Plan, network: Network) -> None:
        self._plan, self._network = plan, network
        hosts = Mount("/etc/hosts", network.hosts, is_read_only=True)
        whole = Plan(
            plan.image, plan.command, plan.environment, plan.folder, plan.user,
            (*plan.mounts, hosts), plan.is_read_only,
        )  # fmt: skip
        make_mount_points(whole)
        self.log = network.hosts.parent / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *_DIES_WITH_US, str(os.getpid()),
                    "nsenter", f"--net={network.path}",
                    "unshare", "--mount", "--pid", "--fork", "--kill-child",
                    "sh", "-c", whole.script(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def said(self) -> str:
        """All that it has written so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail if it ends first, or patience does."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not (self._has_begun() and condition()):
            assert time.monotonic() < deadline_s, f"not in time: {what}: {self.said[-2000:]}"
            try:
                self._process.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                continue
            raise AssertionError(f"it ended before {what}: {self.said[-2000:]}")

    def until_page(self, address: str) -> bytes:
        """Wait until an address of its network answers with 200; return the answer."""
        found: list[bytes] = []

        def answers() -> bool:
            status, body = self._network.get(address)
            found[:] = [body]
            return status == 200

        self.until(answers, address)
        return found[0]

    def _has_begun(self) -> bool:
        """Return whether process 1 has all its mounts, and is the program itself."""
        number = self._process.pid
        children = Path(f"/proc/{number}/task/{number}/children")
        try:
            first = children.read_text(encoding="utf-8").split()[0]
            return Path(f"/proc/{first}/root").readlink() == self._plan.image
        except (OSError, IndexError):
            return False

    def run(self, *command: str) -> int:
        """Run another command inside, as an engine runs a health check; return its exit code."""
        enters = ["nsenter", f"--target={self._first()}", "--net", "--mount", "--pid"]
        done = subprocess.run(
            [*enters, *self._plan.inside(command)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode

    def status(self) -> dict[str, str]:
        """Return what the kernel says of its process 1."""
        lines = Path(f"/proc/{self._first()}/status").read_text(encoding="utf-8").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def stop(self, by: signal.Signals = signal.SIGTERM, grace_s: float = PATIENCE_S) -> int:
        """Send process 1 a signal, wait for so long at most, and return its exit code."""
        os.kill(self._first(), by)
        return self._process.wait(grace_s)

    def _first(self) -> int:
        number = self._process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text(encoding="utf-8")
        assert children, f"it is not running: {self.said[-2000:]}"
        return int(children.split()[0])
