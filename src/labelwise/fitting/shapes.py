"""At which shape a method reads images."""

from pathlib import Path

from labelwise.fitting.choice import encoder_of
from labelwise.images.catalogue import EMBEDDED, names_own_files
from labelwise.images.dataset import Dataset
from labelwise.images.view import WHOLE, View
from labelwise.train.method import Method
from labelwise.train.networks.encoder import Encoder, side_for


def shape_for(method: Method, data: Dataset) -> tuple[int, ...]:
    """Return the shape at which a method reads images: their own; of files, as its encoder takes them."""
    if data.shape is not None:
        return data.shape
    side = side_for(encoder_of(method), method.view)
    return (3, side, side)


def size_for(source: str | Path, encoder: Encoder, view: View = WHOLE) -> int | None:
    """Return the side at which the images of a word are read for an encoder; None leaves it to them, or to who reads them."""
    if names_own_files(source) or (str(source) in EMBEDDED and not Path(source).exists()):
        return None
    return encoder.side(view)
