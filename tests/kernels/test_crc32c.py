"""CRC-32C: the kernel against published values and against the compiled package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.kernels.record_batch import checksum, checksum_sliced

ROOT = Path(__file__).parents[2]

# The examples of RFC 3720 (iSCSI), B.4, and the check value that CRC catalogues give.
PUBLISHED = {
    b"123456789": 0xE3069283,
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


def of(data: bytes) -> int:
    """Return the kernel's checksum."""
    return int(checksum(np.frombuffer(data, dtype=np.uint8)))


@pytest.mark.parametrize("data", PUBLISHED)
def test_published_values(data: bytes) -> None:
    """The values that the standard gives come out."""
    assert of(data) == PUBLISHED[data]


@given(st.binary(max_size=100))
def test_any_bytes(data: bytes) -> None:
    """It is the compiled package's checksum, whatever the length."""
    assert of(data) == crc32c.crc32c(data)


@given(st.binary(max_size=100).map(lambda data: data[: len(data) & ~7]))
def test_processors_without_the_instruction(data: bytes) -> None:
    """The way that every processor can go gives the same."""
    assert int(checksum_sliced(np.frombuffer(data, dtype=np.uint8))) == of(data)


@pytest.mark.deep
def test_code_for_any_processor_does_without_the_instruction(tmp_path: Path) -> None:
    """Compiled for a generic processor, as for an image, the checksum is the same."""
    program = (
        "import numpy as np\n"
        "from consumers.kernels.record_batch import checksum\n"
        "print(hex(checksum(np.frombuffer(b'123456789', dtype=np.uint8))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBA_CPU_NAME": "generic",
            "NUMBA_DISABLE_JIT": "0",
            "STREAMNB_CACHE_DIR": str(tmp_path),
        },
    )
    assert (done.stdout.strip(), done.returncode) == ("0xe3069283", 0), done.stderr
