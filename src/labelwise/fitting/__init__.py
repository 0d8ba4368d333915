"""Fit a calibrated classifier to data: choice of a method, training, calibration."""
