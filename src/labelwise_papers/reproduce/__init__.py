"""Reproduce: run the cells of recipes, keep every result, and set them next to the papers' figures."""
