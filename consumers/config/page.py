"""What the page shows, and what things are called on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StringConstraints

from consumers.config.sections import Section

if TYPE_CHECKING:
    from consumers.config.settings import Settings

# Each has a light and a dark shade in style.css that can be read on its ground; a free choice of
# colour could not.
Colour = Literal[
    "blue", "red", "grey", "orange", "purple", "green", "pink", "gold", "indigo", "brown", "olive"
]
ShortText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=80)]

SENTIMENT = frozenset({"negative", "neutral", "positive"})
# What a message is called, if nobody says it: by the preset of the stream, or what is made up.
_BY_PRESET = {
    "jetstream": "post",
    "jetstream-v2": "post",
    "mastodon": "post",
    "twitter-v1": "tweet",
    "x-v2": "tweet",
    "wikimedia": "edit",
}
_BY_MADE_UP = {"tweets": "tweet", "loans": "application"}


class ClassSettings(Section):
    """How the page shows one class."""

    name: ShortText | None = None  # None: as the class is called
    colour: Colour | None = None  # None: one that is free


class PageSettings(Section):
    """What the page shows, what it calls things, and when it would rather say why it does not."""

    unsure_below: float = Field(default=0.65, ge=0, le=1)  # posterior of the likeliest class
    share_messages_min: int = Field(default=30, ge=1)
    title: ShortText = "streamnb"
    message_name: ShortText | None = None  # None: by the source
    message_name_plural: ShortText | None = None  # None: with an s
    question: ShortText | None = None  # stands before what is searched for; None: by the classes
    placeholder: ShortText = 'words, "a phrase", -without, #tag'
    classes: dict[str, ClassSettings] = Field(default_factory=dict, max_length=100)


def message_names(settings: Settings) -> tuple[str, str]:
    """Return what the page calls a message, and several."""
    page, source = settings.page, settings.source
    made_up = _BY_MADE_UP[settings.generator.stream] if source == "generator" else None
    preset = _BY_PRESET.get(settings.message.preset or "")
    one = page.message_name or made_up or preset or "message"
    return one, page.message_name_plural or f"{one}s"


def question(settings: Settings) -> str:
    """Return what stands before that which is searched for."""
    is_sentiment = set(settings.model.classes) <= SENTIMENT
    return settings.page.question or (
        "Sentiment analysis for" if is_sentiment else "Predictions for"
    )


def wrong_page_classes(settings: Settings) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Find classes that the page shows and the model will never have."""
    if settings.model.new_classes:
        return
    known = ", ".join(map(repr, settings.model.classes))
    for label in settings.page.classes:
        if label not in settings.model.classes:
            yield ("page", "classes", label), f"is not in model.classes: {known}"
