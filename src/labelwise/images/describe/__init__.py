"""What is known about labels beside their names."""
