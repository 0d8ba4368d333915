"""Methods that only a table of a paper needs, as baselines of others."""
