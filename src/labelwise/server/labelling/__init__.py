"""A labelling project: its images and actions on disk, and its web page."""
