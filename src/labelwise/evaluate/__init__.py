"""Protocols, one file each, and the images that they measure: ``choose_part``."""

from labelwise.evaluate.folds import FoldsResult, evaluate_folds
from labelwise.evaluate.part import Part, choose_part, choose_parts

__all__ = ["FoldsResult", "Part", "choose_part", "choose_parts", "evaluate_folds"]
