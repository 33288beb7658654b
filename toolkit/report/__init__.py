"""What a run did and what replay changed: the summary, the report file and the picture."""

from __future__ import annotations

from .document import write_report
from .picture import replay_map_picture
from .summary import summary, summary_table
from .view import ReportFacts, RunView

__all__ = [
    "ReportFacts",
    "RunView",
    "replay_map_picture",
    "summary",
    "summary_table",
    "write_report",
]
