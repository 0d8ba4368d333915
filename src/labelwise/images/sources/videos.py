"""Videos as sources of images: each is a number of frames, whose addresses are paths as any other (``clip.mp4#t=2.5``)."""

import warnings
from importlib.util import find_spec
from pathlib import Path

from labelwise.images.decode.crops import crop_address, is_video
from labelwise.images.decode.videos import MISSING, Clip
from labelwise.images.sources.paths import is_image, list_files
from labelwise.support.errors import DataError, LabelwiseWarning, UnsupportedError

RATE = 1.0  # frames for each second
MOST = 100_000  # frames that are taken of one video


def frames(video: str | Path, rate: float = RATE) -> list[str]:
    """Return the addresses of frames of a video, ``rate`` of them for each second: ``clip.mp4#t=0``, ``clip.mp4#t=1``.

    A path where an image is taken may be such an address. Of a video that cannot be read, it is that of its beginning: reading that says why.
    """
    if not 0 < rate <= 1000:
        raise DataError(f"A frame rate is above 0 and at most 1000; given {rate}.")
    if not find_spec("av"):
        raise UnsupportedError(f'"{video}" cannot be read: {MISSING}.')
    try:
        clip = Clip.of_file(str(video))
        seconds = clip.duration
        clip.close()
    except Exception:  # FFmpeg has errors of many kinds
        return [crop_address(str(video), None, 0)]
    if seconds * rate > MOST:
        raise DataError(
            f'"{video}" says that it lasts {seconds:.0f} seconds, which are {seconds * rate:.0f} frames; {MOST} are taken of a video at '
            "most. Lower the frame rate, or cut the video."
        )
    return [crop_address(str(video), None, number / rate) for number in range(max(1, round(seconds * rate)))]


def images_and_frames(place: str | Path, rate: float = RATE) -> list[tuple[str, str]]:
    """Return the addresses of the images at a path, a video or a folder, each with its file; videos in it are frames."""
    if not Path(place).is_dir():
        return [(address, str(place)) for address in frames(place, rate)]
    files = [str(file) for file in list_files(place, lambda name: is_image(name) or is_video(name))]
    videos = sum(map(is_video, files))
    if videos and not find_spec("av"):
        words = f'{videos} videos in "{place}" are left out: {MISSING}.'
        warnings.warn(words, LabelwiseWarning, stacklevel=2)
        files = [file for file in files if not is_video(file)]
    return [(address, file) for file in files for address in (frames(file, rate) if is_video(file) else [file])]
