"""Corrections: labels and deletions that people send, as one more log that the model learns from.

    request ──► Desk ── append, sync ──► log: journal or Kafka topic
                                            │ read back
                                            ▼
                Applying (consuming thread) ◄── Reading (thread of its own)

Nothing outside a log ever teaches. A correction is answered for once it is safe in the log, and
applied once it has been read back, between two batches of the stream; its position is saved with
the counts. So a kill neither loses a correction nor applies it twice.

Limits. What a message taught is known for as long as it is among the recent messages. A message
that comes twice in the stream taught twice, and the newer time is what is taken back. A daemon
applies the corrections of the partitions that it reads: where members of a Kafka group hand a
partition over, those of before are not applied by the member that reads it anew. An example that
came with a request teaches every daemon that reads the log, and has no message to be deleted by.
"""

from consumers.corrections.applier import CorrectionApplier
from consumers.corrections.message_lookup import FoundMessage, MessageLookup
from consumers.corrections.model import (
    CorrectionError,
    InDoubt,
    NotReady,
    NotWritten,
    UnknownLabel,
    UnknownMessage,
    UnusableExample,
)
from consumers.corrections.service import CorrectionService, Receipt

__all__ = [
    "CorrectionApplier",
    "CorrectionError",
    "CorrectionService",
    "FoundMessage",
    "InDoubt",
    "MessageLookup",
    "NotReady",
    "NotWritten",
    "Receipt",
    "UnknownLabel",
    "UnknownMessage",
    "UnusableExample",
]
