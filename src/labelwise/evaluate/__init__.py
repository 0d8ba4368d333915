"""Protocols, one file each, and the images that they measure: ``choose_part``."""

from labelwise.evaluate.part import Part, choose_part, choose_parts

__all__ = ["Part", "choose_part", "choose_parts"]
