"""What is known about labels besides their names."""
