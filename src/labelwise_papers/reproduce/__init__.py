"""Reproduce: run the cells of recipes, keep every result, and set them beside the papers' figures."""
