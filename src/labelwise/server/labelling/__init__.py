"""A project of labelling: its images and actions on disk, and the page."""
