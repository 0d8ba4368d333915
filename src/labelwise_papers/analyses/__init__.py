"""Analyses that only a table of a paper needs."""
