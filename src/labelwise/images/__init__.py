"""Images and their labels: sources, decoding, splits, and what is known about labels."""
