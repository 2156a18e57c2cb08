"""Why one message cannot be used, before it is known which message of the stream it was."""

from __future__ import annotations

from typing import NamedTuple

from consumers.messages import Reason


class Fault(NamedTuple):
    """What is wrong with a message: the reason to count it by, and a sentence for people.

    The decoder makes a `Reject` of it, which also carries the message's place and its raw bytes.
    """

    reason: Reason
    detail: str
