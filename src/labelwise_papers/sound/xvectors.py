"""Backbones for sound: x-vectors."""

import math
from functools import partial

import torch
from torch import Tensor, nn

from labelwise.train.networks.backbone import Backbone
from labelwise_papers.sound.spectrogram import FLOOR, Spectrogram

COEFFICIENTS, MELS = 23, 40  # cepstral coefficients, and log-mel energies, of a frame of sound


class XVector(Backbone):
    """A time-delay network with the mean and the deviation over time (x-vectors); d is half its width (512 as published).

    It takes features of sound over time, ``(c, coefficients, frames)``; or, where ``rate`` says how many samples a second has,
    waveforms ``(samples,)``, of which it makes 23 cepstral coefficients a frame.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 512, rate: int | None = None) -> None:
        super().__init__(max(1, width // 2))
        self.waveforms = rate is not None
        self.spectrogram = None if rate is None else Spectrogram(rate, coefficients=COEFFICIENTS)
        channels = COEFFICIENTS if rate is not None else shape[0] * shape[1]
        layers: list[nn.Module] = []
        for kernel, dilation, out in ((5, 1, width), (3, 2, width), (3, 3, width), (1, 1, width), (1, 1, 3 * width)):
            padding = dilation * (kernel // 2)
            layers += [nn.Conv1d(channels, out, kernel, padding=padding, dilation=dilation), nn.BatchNorm1d(out)]
            layers.append(nn.ReLU())
            channels = out
        self.layers = nn.Sequential(*layers)
        self.full = nn.Linear(6 * width, self.width_out)

    def maps(self, x: Tensor) -> Tensor:
        """Return the last layer over time ``[n, 3 * width, 1, frames]``."""
        frames = (x if self.spectrogram is None else self.spectrogram(x)).flatten(1, 2)
        centred = frames - frames.mean(2, keepdim=True)  # what a microphone adds to every frame
        return self.layers(centred)[:, :, None]  # type: ignore[no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]``: a linear layer on mean and deviation over time."""
        x = maps.flatten(2).float()
        deviation = (x.var(2, correction=0) + 1e-5).sqrt()
        return self.full(torch.cat([x.mean(2), deviation], 1))  # type: ignore[no-any-return]


class MelXVector(XVector):
    """X-vectors of single words: 40 log-mel energies a frame, each standardised over training, and silence does not count.

    The mean over a word tells much of its speaker, so it stays. Frames of silence, such as those that fill a short sound up, become the mean
    frame of the sound, and the mean and the deviation over time are those of the other frames. Waveforms have a root mean square of 1.
    """

    def __init__(self, shape: tuple[int, ...], width: int = 512, *, rate: int) -> None:
        super().__init__((1, MELS, *shape), width)
        self.waveforms = True
        self.spectrogram = Spectrogram(rate, mels=MELS)
        self.standard = nn.BatchNorm1d(MELS, affine=False)

    def maps(self, x: Tensor) -> Tensor:
        """Return the last layer over time ``[n, 3 * width, 1, frames]``, zero where there is silence."""
        assert self.spectrogram is not None
        energies = self.spectrogram(x)[:, 0]
        heard = energies.amax(1, keepdim=True) > math.log(2 * FLOOR)
        mean = (energies * heard).sum(2, keepdim=True) / heard.sum(2, keepdim=True).clamp_min(1)
        standard = self.standard(torch.where(heard, energies, mean))
        return (self.layers(standard) * heard)[:, :, None]  # type: ignore[no-any-return]

    def pool(self, maps: Tensor) -> Tensor:
        """Return embeddings ``[n, d]``: a linear layer on mean and deviation over the frames that are not zero everywhere."""
        x = maps.flatten(2).float()
        heard = x.any(1, keepdim=True)
        count = heard.sum(2).clamp_min(1)
        mean = x.sum(2) / count
        variance = ((x - mean[:, :, None]).square() * heard).sum(2) / count
        return self.full(torch.cat([mean, (variance + 1e-5).sqrt()], 1))  # type: ignore[no-any-return]


xvector_8k, xvector_16k = (partial(XVector, rate=rate) for rate in (8_000, 16_000))
xvector_mel_8k, xvector_mel_16k = (partial(MelXVector, rate=rate) for rate in (8_000, 16_000))
