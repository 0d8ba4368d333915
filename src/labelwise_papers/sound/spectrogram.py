"""Images of sound: log-mel spectrograms and cepstral coefficients, a whole batch on the device."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.support.errors import UsageError

FLOOR = 1e-6  # power added to every energy before its logarithm


class Spectrogram(nn.Module):
    """Waveforms ``[n, t]`` to log-mel energies ``[n, 1, mels, frames]`` or to cepstral coefficients (MFCC).

    Frames are whole windows: ``frames = 1 + (t - window) // hop``. Filters are triangles on the mel scale
    ``2595 log10(1 + f / 700)`` from 0 to half the rate; energies are ``log(power + 1e-6)``. The coefficients are the
    first of the orthonormal cosine transform (DCT-II) of the log-mel energies; None keeps these. ``rate`` is samples per second,
    ``window`` (Hann) and ``hop`` are in seconds.
    """

    window: Tensor
    filters: Tensor
    cosines: Tensor

    def __init__(
        self, rate: int, *, mels: int = 40, coefficients: int | None = None, window: float = 0.025, hop: float = 0.01
    ) -> None:
        from scipy.fft import dct

        super().__init__()
        size, self.hop = round(window * rate), round(hop * rate)
        if size < 2 or self.hop < 1:
            raise UsageError(f"A window of {window} s every {hop} s is too short for {rate} samples per second.")
        if coefficients is not None and not 1 <= coefficients <= mels:
            raise UsageError(f"There can be 1 to {mels} coefficients, as there are {mels} mels; given {coefficients}.")
        self.size, self.fft = size, 2 ** math.ceil(math.log2(size))
        with torch.device("cpu"):  # also while a model is built without memory
            self.register_buffer("window", torch.hann_window(size), persistent=False)
            self.register_buffer("filters", mel_filters(rate, self.fft, mels), persistent=False)
            cosines = dct(np.eye(mels), axis=0, norm="ortho")[: coefficients or 0]
            self.register_buffer("cosines", torch.from_numpy(cosines).float(), persistent=False)

    def forward(self, waveforms: Tensor) -> Tensor:
        """Return ``[n, 1, mels, frames]``, or ``[n, 1, coefficients, frames]``."""
        if waveforms.ndim != 2 or waveforms.shape[1] < self.size:
            raise UsageError(
                f"Waveforms must be [n, t] with at least {self.size} samples, one window; given {list(waveforms.shape)}."
            )
        spare = self.fft - self.size  # the transform is longer than the window, which stands in its middle
        with torch.autocast(waveforms.device.type, enabled=False):
            padded = nn.functional.pad(waveforms.float(), (spare // 2, spare - spare // 2))
            spectrum = torch.stft(padded, self.fft, self.hop, self.size, self.window, center=False, return_complex=True)
            power = spectrum.real.square() + spectrum.imag.square()
            energies = torch.log(self.filters @ power + FLOOR)
            return (self.cosines @ energies if len(self.cosines) else energies)[:, None]


def mel_filters(rate: int, fft: int, mels: int) -> Tensor:
    """Return triangles of height one on the mel scale ``[mels, fft // 2 + 1]``."""
    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), mels + 2) / 2595) - 1)
    bins = np.arange(fft // 2 + 1) * rate / fft
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    filters = np.minimum(rising, falling).clip(0)
    if mels < 1 or not filters.any(1).all():
        raise UsageError(
            f"{mels} mels are too many for windows of {fft} values at {rate} samples per second: some would be empty. "
            "Use fewer, or a longer window."
        )
    return torch.from_numpy(filters).float()
