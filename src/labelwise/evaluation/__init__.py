"""What is measured, and how: test sets, protocols (one file each), and ``evaluate``, which runs those that apply."""
