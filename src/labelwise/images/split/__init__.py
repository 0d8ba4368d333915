"""Splits: made, kept in files, checked for leaks."""
