"""Save successful adversarial images, with the clean images and the perturbations."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from labelwise.evaluation.evaluation import Evaluation
from labelwise_papers.attacks.attack import AttackSettings, attack

SIDE = 192  # of each image that is written, at least


def write_fooled(folder: Path, evaluation: Evaluation, epsilon: float, most: int) -> list[dict[str, Any]]:
    """Write at most so many fooled images into a folder, and return the file, the label and the answer of each."""
    result = attack(
        evaluation.classifier,
        evaluation.split.images,
        torch.as_tensor(evaluation.targets),
        AttackSettings(epsilon=epsilon),
    )
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, row in enumerate((result.fooled & ~result.wrong).nonzero()[:most, 0].tolist()):
        file = folder / f"{number:03d}.png"
        Image.fromarray(strip(result.clean[row], result.images[row], epsilon)).save(file)
        label = evaluation.labels.names[int(evaluation.split.targets[row])]
        written.append({"file": str(file), "label": label, "answer": result.answers[row]})
    return written


def strip(clean: Tensor, perturbed: Tensor, epsilon: float) -> NDArray[np.uint8]:
    """Return an image ``[c, h, w]``, the perturbed one and their difference (grey is none) side by side, ``[H, W, 3]``."""
    panels = torch.stack([clean, perturbed, (perturbed - clean) / (2 * epsilon) + 0.5]).cpu().clamp(0, 1)
    times = max(1, -(-SIDE // panels.shape[3]))
    panels = panels.expand(-1, 3, -1, -1).repeat_interleave(times, 2).repeat_interleave(times, 3)
    whole = panels.permute(2, 0, 3, 1).flatten(1, 2)
    pixels: NDArray[np.uint8] = (whole * 255).round().to(torch.uint8).numpy()
    return pixels
