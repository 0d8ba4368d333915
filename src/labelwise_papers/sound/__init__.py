"""Sound as a kind of image: spectrograms and x-vectors."""
