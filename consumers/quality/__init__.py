"""How good the model is and what changes: figures over time, honest shares, words on the move."""

from consumers.quality.quality import Quality
from consumers.quality.report import (
    Confusion,
    Point,
    PrequentialFigures,
    QualityReport,
    Telling,
    Trend,
    WindowFigures,
)
from consumers.quality.shares import Share, ShareReport, Shares

__all__ = [
    "Confusion",
    "Point",
    "PrequentialFigures",
    "Quality",
    "QualityReport",
    "Share",
    "ShareReport",
    "Shares",
    "Telling",
    "Trend",
    "WindowFigures",
]
