"""Make splits, store them in files, check them for leaks."""
