"""Every source of data, read into columns."""
