"""Images that are read when a number of them is asked for: what was made of them before may do without."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class Source:
    """Where the images ``[n, c, h, w]`` of one reading come from, each read at most once.

    ``read`` returns the bytes of some rows, which go to ``pixels``; memory that is not written to yet costs nothing.
    """

    def __init__(
        self, digests: Sequence[bytes], hashes: Tensor, read: Callable[[list[int]], Tensor], pixels: Tensor
    ) -> None:
        self.digests, self.hashes, self._read, self._pixels = tuple(digests), hashes, read, pixels
        self.share: slice | None = None  # the rows that this process reads, where several share them
        self._ready = torch.zeros(len(digests), dtype=torch.bool)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self._pixels.shape[1:])

    def hashes_of(self, rows: Tensor) -> Tensor:
        """Return what ``image_hashes`` says of these rows ``[n]``."""
        return self.hashes[rows]

    def put(self, rows: Sequence[int], pixels: Tensor) -> None:
        """Note the bytes of some rows that were read already."""
        if pixels is not self._pixels:
            self._pixels[list(rows)] = pixels
        self._ready[list(rows)] = True

    def rows_read(self) -> Tensor:
        """Return the rows that were read already."""
        return self._ready.nonzero()[:, 0]

    def pixels(self, rows: Tensor) -> Tensor:
        """Return the bytes of these rows, reading those that were not read yet."""
        missing = torch.unique(rows[~self._ready[rows]]).tolist()
        if missing:
            self.put(missing, self._read(missing))
        whole = len(rows) == len(self._pixels) and torch.equal(rows, torch.arange(len(rows)))
        return self._pixels if whole else self._pixels[rows]


class LazyImages(Tensor):
    """Bytes ``[n, c, h, w]`` of a source, read when a number of them is asked for; to choose rows or to join them asks for none."""

    source: Source
    rows: Tensor

    @staticmethod
    def __new__(cls, source: Source, rows: Tensor) -> "LazyImages":
        """Return the images of some rows of a source."""
        make: Any = Tensor._make_wrapper_subclass
        images: LazyImages = make(cls, (len(rows), *source.shape), dtype=torch.uint8)
        images.source, images.rows = source, rows
        return images

    @property
    def digests(self) -> list[bytes]:
        """The digest of each image's pixels."""
        return [self.source.digests[row] for row in self.rows.tolist()]

    @property
    def hashes(self) -> Tensor:
        """What ``image_hashes`` says of the images ``[n]``."""
        return self.source.hashes_of(self.rows)

    def pixels(self) -> Tensor:
        """Return the images themselves."""
        return self.source.pixels(self.rows)

    def numpy(self, *, force: bool = False) -> Any:
        """Return the images as an array."""
        return self.pixels().numpy(force=force)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.pixels().clone().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: Any) -> "LazyImages":
        return LazyImages(self.source, self.rows)

    def __repr__(self) -> str:  # type: ignore[override]
        return f"LazyImages{list(self.shape)}"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return images whose rows alone change; what else is asked for is left to ``__torch_dispatch__``.

        Rows are chosen here, since the first call of that imports half of ``torch.distributed``, as long as a second fit takes.
        """
        kwargs = kwargs or {}
        chosen = _chosen(func, *args, **kwargs) if func in _CHOOSING and kwargs.keys() <= {"dim"} else None
        return torch._C._disabled_torch_function_impl(func, types, args, kwargs) if chosen is None else chosen

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Return whatever an operation makes of the images themselves."""
        return func(*_plain(args), **_plain(kwargs or {}))


_CHOOSING = (Tensor.__getitem__, Tensor.detach, Tensor.split, torch.split, torch.cat)


def _chosen(func: Any, images: Any, how: Any = 0, dim: int = 0) -> Any:
    """Return the images that are left where one of ``_CHOOSING`` chooses or joins rows; None where it does something else."""
    if func is torch.cat:
        sources = {each.source if isinstance(each, LazyImages) else None for each in images}
        one = sources.pop() if len(sources) == 1 and how == dim == 0 else None
        return LazyImages(one, torch.cat([each.rows for each in images])) if one else None
    source, rows = images.source, images.rows
    if func is Tensor.detach:
        return LazyImages(source, rows)
    if func is not Tensor.__getitem__:
        return tuple(LazyImages(source, part) for part in torch.split(rows, how)) if dim == 0 else None
    left = rows[0] if isinstance(how, tuple) else rows[how.cpu() if isinstance(how, Tensor) else how]
    return LazyImages(source, left) if left.ndim == 1 else None


def _plain(value: Any) -> Any:
    """Return arguments of an operation with the images themselves in them."""
    if isinstance(value, LazyImages):
        return value.pixels()
    if isinstance(value, list | tuple):
        return type(value)(_plain(each) for each in value)
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value
