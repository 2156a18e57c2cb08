"""The examples of a request, texts or messages, as columns for the model.

What the stream would refuse is refused here in the same words, with the place in the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consumers.config.model import Kind
from consumers.config.settings import Settings
from consumers.decode.decoder import Decoder
from consumers.decode.example_input import example_at, text_field
from consumers.decode.labels import NoLabels
from consumers.features import columns_of, kinds_of
from consumers.http.responses import ProblemError
from consumers.messages import Partition, RawColumns

_REQUEST = Partition("request", 0)


@dataclass(frozen=True, slots=True)
class RequestExamples:
    """Examples as columns of the model's fields, each of length `n`."""

    columns: dict[str, Any]
    n: int
    kinds: Mapping[str, Kind] | None = None  # None if the columns are lists of texts

    def example(self, i: int) -> dict[str, Any]:
        """Return one example, its fields by name."""
        if self.kinds is None:
            return {name: column[i] for name, column in self.columns.items()}
        return example_at(self.columns, self.kinds, i)


class ExampleDecoder:
    """Decodes the texts and messages of requests as the settings say for the stream's."""

    def __init__(self, settings: Settings) -> None:
        model = settings.model
        self._kinds = kinds_of(model)
        self.text_field = text_field(self._kinds)  # of a text alone; None if none, or several
        self._decoder = Decoder(settings.message, NoLabels(model.classes), reads=self._kinds)

    def texts(self, texts: Sequence[str]) -> RequestExamples:
        """Return texts as examples; 422 if the model reads no text, or several."""
        if self.text_field is None:
            raise ProblemError(
                422,
                "the model does not read one text alone; send a message with its fields: "
                + ", ".join(self._kinds),
            )
        return RequestExamples({self.text_field: texts}, len(texts))

    def messages(self, messages: Sequence[bytes], name: str) -> RequestExamples:
        """Return messages, as JSON objects, as examples; `name` is what the request calls them.

        Raises
        ------
        ProblemError
            422 for the first that the stream would reject, or that is a deletion.
        """
        decoded = self._decoder.decode(_raw(messages))
        for reject in decoded.rejects:
            place = _place(name, reject.offset)
            raise ProblemError(422, f"{place} cannot be used ({reject.reason}): {reject.detail}")
        rows = decoded.to_predict
        if len(rows) != len(messages):
            at = int(np.setdiff1d(np.arange(len(messages)), rows)[0])
            raise ProblemError(
                422, f"{_place(name, at)} is a deletion: there is nothing in it to judge"
            )
        columns = columns_of(decoded, rows, list(self._kinds))
        return RequestExamples(dict(columns), len(messages), self._kinds)


def _place(name: str, i: int) -> str:
    return f"{name}[{i}]" if name == "messages" else name


def _raw(messages: Sequence[bytes]) -> RawColumns:
    """Return messages as a source hands them over; their offsets are their places."""
    n = len(messages)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, n))
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    nothing = np.full(n, -1, np.int64)
    return RawColumns(
        _REQUEST, b"".join(messages), starts, ends, np.zeros(n, np.int64), nothing,
        np.arange(n, dtype=np.int64), nothing, n,
    )  # fmt: skip
