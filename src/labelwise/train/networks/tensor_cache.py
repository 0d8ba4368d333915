"""Features of images that were made before: as long as the images live."""

from torch.utils.weak import WeakTensorKeyDictionary


class WeakTensorCache(WeakTensorKeyDictionary):
    """What was made of tensors, as long as these live; a pickle holds none of it, for these tensors stay behind."""

    def __reduce__(self) -> tuple[type["WeakTensorCache"], tuple[()]]:
        return WeakTensorCache, ()
