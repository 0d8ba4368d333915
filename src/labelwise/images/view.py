"""The view: how images are resized and cropped for a model. It is saved with the model and used everywhere."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from labelwise.support.errors import UsageError
from labelwise.support.settings import setting

Fit = Literal["crop", "stretch", "crop bicubic", "stretch bicubic"]  # bilinear unless it says bicubic


@dataclass(frozen=True, kw_only=True)
class View:
    """How images are resized and cropped for a network.

    An image is read at the shape of the model as ``fit`` says; of that the network sees the centre that ``crop`` keeps, brought to
    ``size``. What is not of the model's shape is taken whole: the random crops of training, to which a crop is the matching test.

    >>> View(crop=0.875).seen((3, 256, 256))
    (3, 224, 224)
    """

    size: int | None = setting(
        None, "Side in pixels that the network sees; none: the side of its weights, else of the crop."
    )
    crop: float | None = setting(
        None, "Centre crop: up to 1 a share of each side, above 1 a side in pixels; none: the whole image."
    )
    fit: Fit = setting("crop", "How a file becomes the shape: cropped to its centre, or stretched.")
    mirror: bool = setting(False, "Average embeddings over an image and its mirror image, except in training.")

    def __post_init__(self) -> None:
        if self.size is not None and self.size < 1:
            raise UsageError(f"view.size is a side in pixels, at least 1; given {self.size}.")
        if self.crop is not None and not (0 < self.crop <= 1 or (self.crop > 1 and float(self.crop).is_integer())):
            raise UsageError(
                f"view.crop is a share of the side, above 0 and up to 1, or a whole number of pixels; given {self.crop}."
            )
        if self.fit not in get_args(Fit):
            raise UsageError(f'view.fit is "crop" or "stretch", with " bicubic" behind it or not; given "{self.fit}".')

    def window(self, height: int, width: int) -> tuple[slice, slice]:
        """Return the rows and columns of an image inside the crop."""
        return _middle(height, self.crop), _middle(width, self.crop)

    def seen(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape ``(c, h, w)`` that the network sees for images of a shape; features keep theirs."""
        if self.size is not None:
            return (shape[0], self.size, self.size)
        if self.crop is None:
            return shape
        return (shape[0], *(part.stop - part.start for part in self.window(*shape[1:])))

    def centre(self, images: Any) -> Any:
        """Return the crop of images ``[n, c, h, w]`` that the network sees."""
        return images[(..., *self.window(*images.shape[2:]))]

    def side(self, size: int) -> int:
        """Return the side to read images at, so that the crop has ``size`` pixels."""
        if self.crop is not None and self.crop > 1:
            raise UsageError(
                f"view.crop={self.crop} keeps that many pixels of images that are read larger: say how large, with --size, or "
                "give a share of the side, such as view.crop=0.875."
            )
        return round(size / (self.crop or 1))

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise an error unless the view fits images of this shape; features are not allowed."""
        settings = [f"view.{name}={value}" for name, value in vars(self).items() if value != getattr(WHOLE, name)]
        if len(shape) == 1 and settings:
            raise UsageError(
                f"The view says how images are brought to a network, and these images are {shape[0]} numbers each. Leave out "
                f"{', '.join(settings)}."
            )
        if self.crop is not None and self.crop > max(1, min(shape[1:])):
            raise UsageError(
                f"view.crop={self.crop} is more than there is of images {list(shape)}. Read them larger, with --size."
            )


WHOLE = View()


def _middle(side: int, crop: float | None) -> slice:
    """Return the part of a side inside the crop."""
    size = side if crop is None else round(crop) if crop > 1 else max(1, round(side * crop))
    start = (side - size) // 2
    return slice(start, start + size)
