"""Image classifiers whose labels are inputs."""

__version__ = "0.1.0"
