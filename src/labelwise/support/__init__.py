"""Shared code without images or labels: errors, settings, files, caches, signals, processes.

``files`` opens the files that a user names and reads tensors and arrays; ``writable`` writes files. ``cache`` stores
computed features.
"""
