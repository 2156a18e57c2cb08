"""Why a correction is not taken. Each says in a sentence what was found and what to do.

All are a `CorrectionError`: `UnknownMessage`, `UnknownLabel` and `UnusableExample` tell of the
request; `NotReady`, `NotWritten` and `InDoubt` of the desk and its log.
"""

from __future__ import annotations

from consumers.errors import ConsumerError


class CorrectionError(ConsumerError):
    """Root of what the desk answers where it does not take a correction."""


class UnknownMessage(CorrectionError):  # noqa: N818 -- what was found, not what went wrong
    """No message of that id is among those that are kept."""


class UnknownLabel(CorrectionError):  # noqa: N818 -- as above
    """The label is none of the model's classes."""


class UnusableExample(CorrectionError):  # noqa: N818 -- as above
    """The example has a field that the model does not read, or a value that it cannot use."""


class NotReady(CorrectionError):  # noqa: N818 -- a state, named for what it is
    """Corrections cannot be taken at the moment; asking again later helps."""


class NotWritten(CorrectionError):  # noqa: N818 -- as above
    """The log did not take the correction, and nothing of it was kept."""


class InDoubt(CorrectionError):  # noqa: N818 -- as above
    """The log has not said in time whether it took the correction."""
