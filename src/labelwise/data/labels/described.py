"""Labels described by the sentences of their own training images."""

from dataclasses import replace

from labelwise.data.dataset import Dataset
from labelwise.errors import DataError, listing

MOST_IMAGES = 100  # whose sentences describe one label


def describe_labels(dataset: Dataset) -> Dataset:
    """Return the data with sentences for each label, taken from its training images where labels have none.

    Each label gets the sentences of its first images in train; a label that has none there, such as one held out to
    choose settings, those of its images in val. The test split is never read. Data whose labels have texts, or whose
    images have none, or several labels each, come back unchanged; so do data where some label would stay without but all have vectors.
    """
    labels = dataset.labels
    if labels.texts is not None or dataset.multilabel:  # a sentence about an image is not about each of its labels
        return dataset
    train, val = (_sentences(dataset, name) for name in ("train", "val"))
    if not train and not val:
        return dataset
    texts = tuple(train.get(i) or val.get(i) or () for i in range(len(labels)))
    silent = [name for name, found in zip(labels.names, texts, strict=True) if not found]
    if not silent:
        return replace(dataset, labels=replace(labels, texts=texts))
    if labels.vectors is not None:
        return dataset
    raise DataError(
        f'Nothing describes these labels of "{dataset.name}": {listing(silent)}. No training image of theirs has a '
        'sentence. Put a file labels.csv beside the data, with the columns "label" and "text" and a row for every label.'
    )


def _sentences(dataset: Dataset, split: str) -> dict[int, tuple[str, ...]]:
    """Return the sentences of the first images of each label in a split, for the labels that have any."""
    if split not in dataset.splits:
        return {}
    part = dataset.splits[split]
    images: dict[int, list[tuple[str, ...]]] = {}
    for target, texts in zip(part.targets.tolist(), part.texts or [()] * len(part), strict=True):
        if texts and target >= 0:
            images.setdefault(target, []).append(texts)
    return {target: tuple(text for texts in found[:MOST_IMAGES] for text in texts) for target, found in images.items()}
