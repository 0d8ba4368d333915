import numpy as np
import pytest
import torch
from scipy.fft import dct
from scipy.signal import get_window

from labelwise.support.errors import UsageError
from labelwise_papers.sound.spectrogram import Spectrogram, mel_filters


def slow(wave: np.ndarray, rate: int, window: int, hop: int, mels: int) -> np.ndarray:
    """Log-mel energies [mels, frames], one frame and one filter at a time."""
    fft = 1
    while fft < window:
        fft *= 2
    edges = [700 * (10 ** (m / 2595) - 1) for m in np.linspace(0, 2595 * np.log10(1 + rate / 2 / 700), mels + 2)]
    columns = []
    for start in range(0, len(wave) - window + 1, hop):
        frame = wave[start : start + window] * get_window("hann", window)
        power = np.abs(np.fft.rfft(frame, fft)) ** 2
        energies = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for i, value in enumerate(power):
                f = i * rate / fft
                total += value * ((f - low) / (middle - low) if low < f <= middle else 0)
                total += value * ((high - f) / (high - middle) if middle < f < high else 0)
            energies.append(np.log(total + 1e-6))
        columns.append(energies)
    return np.array(columns).T


@pytest.mark.parametrize(("rate", "samples"), [(8000, 1000), (8000, 200), (16000, 1203)])
def test_energies_and_coefficients_match_a_slow_reading(rate: int, samples: int) -> None:
    waves = torch.randn(2, samples, generator=torch.Generator().manual_seed(0))
    window, hop = rate * 25 // 1000, rate // 100
    expected = np.stack([slow(wave.double().numpy(), rate, window, hop, 30) for wave in waves])
    energies = Spectrogram(rate, mels=30)(waves)
    assert energies.shape == (2, 1, 30, 1 + (samples - window) // hop)
    assert np.allclose(energies[:, 0].numpy(), expected, atol=1e-4)
    found = Spectrogram(rate, mels=30, coefficients=23)(waves)
    assert found.shape[:3] == (2, 1, 23)
    assert np.allclose(found[:, 0].numpy(), dct(expected, axis=1, norm="ortho")[:, :23], atol=1e-3)


def test_silence_and_rows_on_their_own() -> None:
    picture = Spectrogram(8000, mels=20)
    waves = torch.randn(3, 800)
    assert torch.allclose(picture(waves)[1:2], picture(waves[1:2]), atol=1e-5)
    assert torch.allclose(picture(torch.zeros(1, 800)), torch.tensor(1e-6).log())
    assert not picture.state_dict()
    waves.requires_grad_()
    picture(waves).sum().backward()
    assert waves.grad is not None
    assert waves.grad.abs().sum() > 0
    with torch.autocast("cpu", torch.bfloat16):
        assert picture(waves).dtype == torch.float32


def test_a_tone_lights_its_own_filter() -> None:
    filters = mel_filters(8000, 256, 20)
    tone = torch.sin(2 * torch.pi * 1000 * torch.arange(800) / 8000)[None]
    found = Spectrogram(8000, mels=20)(tone)[0, 0, :, 3].argmax()
    assert found == filters[:, 1000 * 256 // 8000].argmax()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(UsageError, match=r"200 mels are too many for windows of 256 values at 8000"):
        Spectrogram(8000, mels=200)
    with pytest.raises(UsageError, match=r"There can be 1 to 20 coefficients, .* given 23"):
        Spectrogram(8000, mels=20, coefficients=23)
    with pytest.raises(UsageError, match=r"A window of 0.025 s every 1e-05 s is too short"):
        Spectrogram(8000, hop=1e-5)
    with pytest.raises(UsageError, match=r"with at least 200 samples, one window; given \[3, 100\]"):
        Spectrogram(8000)(torch.zeros(3, 100))
