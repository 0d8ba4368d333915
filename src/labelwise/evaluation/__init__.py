"""Measure classifiers: test sets, protocols (one file each), and ``evaluate``, which runs the applicable protocols."""
