"""Which of the learners and clients that we stand beside are installed here.

They come with `pip install --group bench`. A case whose peer is missing is left out, and the table
says so: it never becomes a case without a comparison.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

PEERS = ("river", "scikit-learn", "vowpalwabbit", "kafka-python", "confluent-kafka", "matplotlib")


class LeftOutError(Exception):
    """A case cannot run here; the message says what it lacks, as a sentence."""


def require(*packages: str) -> None:
    """Go on where all packages are installed.

    Raises
    ------
    LeftOutError
        Where one is missing; it names them and the way to them.
    """
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        raise LeftOutError(
            f"{' and '.join(missing)} not installed (pip install --group bench brings every peer)"
        )


def is_installed(package: str) -> bool:
    """Return whether a package is there, by the name that it is installed under."""
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def versions() -> dict[str, str]:
    """Return the version of each peer that is there."""
    return {name: version(name) for name in PEERS if is_installed(name)}
