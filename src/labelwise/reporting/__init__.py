"""Reports: one self-contained HTML page about a classifier, with plots, images and every figure that applies."""
