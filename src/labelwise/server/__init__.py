"""The HTTP service: one classifier, its questions as routes, taught labels that survive, and a page."""
