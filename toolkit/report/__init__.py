"""What a run did and what replay changed: metrics, the summary, the report file and the picture."""

from __future__ import annotations

from .document import write_report
from .metrics import code_agreement, flicker, psnr, psnr_per_frame, ssim_per_frame
from .picture import replay_map_picture
from .summary import summary, summary_table
from .view import ReportFacts, RunView

__all__ = [
    "ReportFacts",
    "RunView",
    "code_agreement",
    "flicker",
    "psnr",
    "psnr_per_frame",
    "replay_map_picture",
    "ssim_per_frame",
    "summary",
    "summary_table",
    "write_report",
]
