"""Frames of videos, decoded with PyAV (the extra ``video``). An open video is gone through forwards, so that frames in order are cheap.

FFmpeg also reads files that name other files and web addresses, such as playlists. Only containers that hold their pictures themselves
are opened, and only from a stream, so a video cannot make it open anything else.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO, NamedTuple, Self

from PIL import Image

from labelwise.images.decode.headers import UnreadableError
from labelwise.support.files import open_regular

MISSING = 'the package av reads videos: pip install "labelwise[video]"'
CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm,asf,mpeg,mpegts,ogg,flv"
NEAR = 10.0  # seconds: frames so near are reached by decoding on, others by a jump
LAST = 1.0  # seconds for which the last frame is shown, if the video does not say
TICK = 1e-3  # seconds: times in addresses are rounded


class Moment(NamedTuple):
    """A moment of a video."""

    file: str
    seconds: float  # since its beginning


class Clip:
    """An open video."""

    def __init__(self, stream: BinaryIO, max_pixels: int = 2**31 - 1) -> None:
        try:
            av = import_module("av")
        except ImportError:
            raise UnreadableError(f"it is a video; {MISSING}.") from None
        self._stream = stream
        limits = {"format_whitelist": CONTAINERS, "protocol_whitelist": "", "max_pixels": str(max_pixels)}
        self._container = av.open(stream, options=limits)
        if not self._container.streams.video:
            raise UnreadableError("it has no pictures, only sound. Remove it.")
        self._video = self._container.streams.video[0]
        if self._video.codec_context is None:
            raise UnreadableError("its codec is not read. Save it as MP4 (H.264).")
        self._start = float((self._video.start_time or 0) * (self._video.time_base or 0))
        self._rate = float(self._video.average_rate or 25)
        self._frames: Iterator[Any] = iter(())
        self._shown: tuple[float, Any] | None = None
        self._next: tuple[float, Any] | None = None

    @classmethod
    def of_file(cls, file: str, max_pixels: int = 2**31 - 1) -> Self:
        """Open a file."""
        stream = open_regular(file, None)
        try:
            return cls(stream, max_pixels)
        except BaseException:
            stream.close()
            raise

    @property
    def duration(self) -> float:
        """How many seconds the video lasts, as its header says, or else its packets."""
        if self._video.duration:
            return float(self._video.duration * self._video.time_base)
        if self._container.duration:
            return float(self._container.duration) / 1e6
        times = (packet.pts for packet in self._container.demux(self._video) if packet.pts is not None)
        return max(times, default=0) * float(self._video.time_base) - self._start + 1 / self._rate

    def at(self, seconds: float) -> Image.Image:
        """Return what the video shows at a time, upright."""
        if self._shown is None or not self._shown[0] - TICK <= seconds <= self._shown[0] + NEAR:
            self._go_to(seconds)
        while self._next is not None and (self._shown is None or self._next[0] <= seconds + TICK):
            self._shown, self._next = self._next, self._read()
        if self._shown is None:
            raise UnreadableError("it is damaged or cut off: it has no frame. Replace it or remove it.")
        if self._next is None and seconds > self._shown[0] + max(LAST, 2 / self._rate):
            raise UnreadableError(f"the video ends after {self._shown[0]:.1f} seconds.")
        frame = self._shown[1]
        image: Image.Image = frame.to_image()
        turn = round(frame.rotation / 90) % 4 * 90
        return image.rotate(turn, expand=True) if turn else image

    def _go_to(self, seconds: float) -> None:
        """Go to the last frame that can be decoded alone before a time; to the beginning if that is not known."""
        for target in (seconds, 0.0):
            self._container.seek(int((target + self._start) / float(self._video.time_base)), stream=self._video)
            self._frames, self._shown = self._container.decode(self._video), None
            self._next = self._read()
            if self._next is not None and self._next[0] <= seconds + TICK:
                return

    def _read(self) -> tuple[float, Any] | None:
        """Return the next whole frame and its time; one that says no time follows the one before."""
        frame = next((each for each in self._frames if not each.is_corrupt), None)
        if frame is None:
            return None
        before = self._next[0] + 1 / self._rate if self._next else 0.0
        return before if frame.time is None else frame.time - self._start, frame

    def close(self) -> None:
        """Close the video."""
        self._container.close()
        self._stream.close()
