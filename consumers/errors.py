"""What can go wrong in the application, as a tree.

    ConsumerError
    ├── ConfigError        the configuration is wrong: path, what was found, what is allowed
    ├── CheckpointError    a checkpoint cannot be used
    │   ├── MismatchError  it belongs to another configuration
    │   ├── MovedError     its folder is no longer where the configuration says
    │   └── GroupError     the parts that a group shares cannot be read or written
    │       └── GroupMismatchError  they belong to another configuration, or another topic
    ├── QuestionError      what was asked of a model cannot be answered
    ├── SourceError        a source cannot go on (what passes by itself is retried, not raised)
    │   ├── BrokenClientError  its client library fails again and again
    │   ├── ReplacedError  its log is another one than the checkpoint's
    │   └── RegistryError  its schema registry does not answer; the batch is tried again
    └── SinkError          records could not be made safe
        └── TransactionError  brokers, or another daemon, do not allow Kafka's transactions

Each carries the exit code its command ends with.
"""

from __future__ import annotations


class ConsumerError(Exception):
    """Root of the application's errors; its message names the place, the value and the way out."""

    exit_code: int = 1


class ConfigError(ConsumerError):
    """The configuration cannot be used."""

    exit_code = 78  # EX_CONFIG of sysexits.h


class CheckpointError(ConsumerError):
    """No checkpoint in the folder can be read, or none can be written."""

    exit_code = 74  # EX_IOERR


class MismatchError(CheckpointError):
    """The checkpoint was made by another configuration."""

    exit_code = 78


class GroupError(CheckpointError):
    """The parts that a group shares cannot be read or written."""


class GroupMismatchError(GroupError):
    """The parts that a group shares were made by another configuration, or of another topic."""

    exit_code = 78  # starting again does not help


class MovedError(CheckpointError):
    """The folder was moved while the daemon used it; another one may stand in its place."""

    exit_code = 73  # EX_CANTCREAT


class QuestionError(ConsumerError):
    """What was asked of a model is nothing that it could judge."""

    exit_code = 65  # EX_DATAERR


class SourceError(ConsumerError):
    """The source cannot go on by itself."""

    exit_code = 69  # EX_UNAVAILABLE


class BrokenClientError(SourceError):
    """The client library fails of itself, and its new clients too; a new process may go on."""

    exit_code = 70  # EX_SOFTWARE: a supervisor starts it again


class ReplacedError(SourceError):
    """The log is another one, under the same name, than the one that was read before."""

    exit_code = 78  # starting again does not help


class RegistryError(SourceError):
    """The schema registry has no answer yet; trying again after `pause_s` may help."""

    def __init__(self, text: str, pause_s: float) -> None:
        super().__init__(text)
        self.pause_s = pause_s


class SinkError(ConsumerError):
    """Records could not be made safe."""

    exit_code = 74


class TransactionError(SinkError):
    """Transactions cannot go on: the brokers are too old, or another daemon has taken over."""

    exit_code = 78  # starting again does not help
