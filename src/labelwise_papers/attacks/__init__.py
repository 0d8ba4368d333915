"""Attacks on a classifier, and accuracy under attack with checks of the attacks themselves."""
