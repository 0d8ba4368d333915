"""What all rooms share and that knows nothing of images and labels: errors, settings, files, limits, stopping, processes.

Files that a user names are opened by ``regular``, written by ``writable``; ``limits`` says how large they may be. ``files`` holds
tensors and arrays, ``cache`` what need not be computed again.
"""
