"""Protocols, one file each, and the images that they measure: ``choose_part``."""

from labelwise.evaluation.folds import FoldsResult, evaluate_folds
from labelwise.evaluation.part import Part, choose_part, choose_parts

__all__ = ["FoldsResult", "Part", "choose_part", "choose_parts", "evaluate_folds"]
