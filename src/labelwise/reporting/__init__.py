"""Reports: one self-contained HTML page about a classifier, with plots, pictures and every figure that applies."""

from labelwise.reporting.case import Saved
from labelwise.reporting.page import Report, ReportSettings, open_saved, report

__all__ = ["Report", "ReportSettings", "Saved", "open_saved", "report"]
