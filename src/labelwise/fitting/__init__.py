"""From data to a calibrated classifier: the choice of a method, training, calibration; encoders without labels."""
