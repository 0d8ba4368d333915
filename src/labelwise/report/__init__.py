"""Reports: one self-contained HTML page about a classifier, with plots, pictures and every figure that applies."""

from labelwise.report.case import Saved
from labelwise.report.page import Report, ReportSettings, open_saved, report

__all__ = ["Report", "ReportSettings", "Saved", "open_saved", "report"]
