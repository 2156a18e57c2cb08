"""The image of `deploy/docker/Dockerfile`, built step by step in a folder, without an engine.

Each step is read from the Dockerfile, and done as an engine would do it. One thing differs: the
first image is Debian's own Python of the same release and version, which `scripts/setup_image.sh`
keeps in `build/image` beside the packages, so that no step needs a network. The built image is kept
there too, as long as nothing changes that it is made of.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import pytest

from tests.deploy.containers import ROOT, Mount, Plan
from tests.deploy.test_images import DOCKERFILE, instructions

KEPT = ROOT / "build" / "image"
# What an engine gives a program that the image says nothing of, its user having no home.
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
STEP_S = 600.0


def require_parts() -> None:
    """Skip if something is missing to build from; in CI a skip is a failure."""
    if os.geteuid() != 0:
        pytest.skip("only root can build the image in a folder")
    if not (KEPT / ".wheels").exists():
        pytest.skip("nothing to build the image from (scripts/setup_image.sh fetches it)")


@dataclass(slots=True)
class Image:
    """A stage of the Dockerfile: its files, and what it says of a container.

    Attributes
    ----------
    root : Path
        The files.
    environment : dict of str to str
        Variables, those of ENV too.
    said : dict of str to str
        The newest of each instruction that only says something, such as USER.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": PATH, "HOME": "/"})
    said: dict[str, str] = field(default_factory=dict)

    def words(self, name: str) -> list[str]:
        """Return the words of an instruction that is written as a JSON list."""
        found: list[str] = json.loads(self.said[name].removeprefix("CMD "))
        return found

    def health_check(self) -> list[str]:
        """Return the command that asks a container how it is."""
        options, _, command = self.said["HEALTHCHECK"].partition("CMD ")
        assert options.startswith("--")
        found: list[str] = json.loads(command)
        return found

    def plan(self, *arguments: str, environment: Mapping[str, str], **more: Any) -> Plan:
        """Return how a container of it is run; arguments take the place of those of CMD."""
        return Plan(
            self.root,
            [*self.words("ENTRYPOINT"), *(arguments or self.words("CMD"))],
            {**self.environment, **environment},
            self.said["WORKDIR"],
            **{"user": self.said["USER"], **more},
        )


def built() -> Image:
    """Return the image, built if what it is made of has changed since; its kernels take minutes."""
    require_parts()
    place = KEPT / "built"
    stamp = place / "image.json"
    with (KEPT / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait, and then have it too
        made_of = fingerprint()
        if stamp.is_file():
            found = json.loads(stamp.read_text(encoding="utf-8"))
            if found["made_of"] == made_of:
                return Image(Path(found["root"]), found["environment"], found["said"])
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        image = build(place)
        for stage in place.iterdir():
            if stage != image.root:
                shutil.rmtree(stage)
        found = {"root": str(image.root), "environment": image.environment, "said": image.said}
        stamp.write_text(json.dumps({"made_of": made_of, **found}), encoding="utf-8")
    return image


def fingerprint() -> str:
    """Return what changes if something does that the image is made of, or how it is made."""
    copied = [
        ROOT / source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]
    below = [path for top in copied for path in top.rglob("*") if "__pycache__" not in path.parts]
    here = [Path(__file__), Path(__file__).with_name("containers.py"), DOCKERFILE, KEPT / ".wheels"]
    digest = hashlib.sha256(str(KEPT).encode())
    for path in sorted(each for each in [*copied, *below, *here] if each.is_file()):
        digest.update(str(path).encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for tar in sorted(KEPT.glob("*.tar")):
        digest.update(f"{tar.name} {tar.stat().st_mtime_ns}".encode())
    return digest.hexdigest()


def build(folder: Path) -> Image:
    """Carry out the Dockerfile; return the image of its last stage."""
    arguments: dict[str, str] = {}
    stages: dict[str, Image] = {}
    image = Image(folder)
    for name, rest in instructions():
        known = {**arguments, **image.environment}
        text = Template(rest).safe_substitute(known)
        match name:
            case "ARG":
                variable, _, value = rest.partition("=")
                arguments.setdefault(variable, value)
            case "FROM":
                base, *words = text.split()
                image = Image(folder / f"stage-{len(stages)}")
                stages[words[1] if words else "last"] = image
                unpack(base, image.root)
            case "COPY":
                copy(text, image, stages)
            case "RUN":
                run(rest, image, arguments)
            case "ENV":
                image.environment |= dict(word.split("=", 1) for word in shlex.split(text))
            case "WORKDIR":
                Path(f"{image.root}{text}").mkdir(parents=True, exist_ok=True)
                image.said[name] = text
            case "USER" | "VOLUME" | "STOPSIGNAL" | "HEALTHCHECK" | "ENTRYPOINT" | "CMD":
                image.said[name] = text
            case "LABEL" | "EXPOSE":
                pass  # they change nothing
            case _:
                raise AssertionError(f"nobody knows how to carry out {name}")
    return image


def unpack(base: str, root: Path) -> None:
    """Unpack what stands for the image that a stage begins with."""
    name, _, tag = base.partition(":")
    assert name == "python"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "-xf", KEPT / f"{tag}.tar"], check=True)


def copy(text: str, image: Image, stages: Mapping[str, Image]) -> None:
    """Copy files of the project, or of a stage before."""
    *sources, target = text.split()
    base = ROOT
    if sources[0].startswith("--from="):
        base = stages[sources.pop(0).removeprefix("--from=")].root
    into = Path(image.said.get("WORKDIR", "/")) / target
    for source in sources:
        origin, there = Path(f"{base}/{source}"), Path(f"{image.root}/{into}")
        if origin.is_dir():
            # Of the project's folders, what .dockerignore lets pass.
            ignored = shutil.ignore_patterns("__pycache__") if base == ROOT else None
            shutil.copytree(origin, there, symlinks=True, ignore=ignored, dirs_exist_ok=True)
            continue
        if target.endswith("/"):
            there /= origin.name
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin, there)


def run(command: str, image: Image, arguments: Mapping[str, str]) -> None:
    """Run a step's command as root, without a network, the packages lying in /mnt."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/mnt"}
    plan = Plan(
        image.root,
        ["/bin/sh", "-c", command],
        {**arguments, **image.environment, **offline},
        image.said.get("WORKDIR", "/"),
        mounts=[Mount("/mnt", KEPT / "wheels", is_read_only=True)],
    )
    alone = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    done = subprocess.run(
        [*alone, "sh", "-c", plan.script()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 0, f"RUN {command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


if __name__ == "__main__":
    # Before the tests, each of which would wait for it; where a part is missing they say so.
    with contextlib.suppress(pytest.skip.Exception):
        sys.stdout.write(f"{built().root}\n")
