"""Embedded data sets, and sets made of others."""
