"""A discriminant head as a model of torch: what classifiers and the tuning of encoders ask for."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from labelwise.core.head import Array
from labelwise.core.platt import fit_temperature
from labelwise.images.describe.labels import Labels
from labelwise.methods.discriminant.beliefs import Prior
from labelwise.methods.discriminant.fit import DiscriminantFit, fit_discriminant
from labelwise.methods.discriminant.head import Descriptions, DiscriminantHead
from labelwise.methods.discriminant.tune import Trial
from labelwise.methods.discriminant.whitening import Whitening
from labelwise.methods.shared.label_source import LabelSource
from labelwise.methods.shared.linear import Encoder, RowModel, array
from labelwise.support.errors import UsageError
from labelwise.train.data import TrainData
from labelwise.train.model import Spec
from labelwise.train.tensors import mean_distances, root_features

PRIOR = {"axes": "axes", "values": "variances", "other": "other_variance"}  # entries of the state


class DiscriminantModel(RowModel):
    """An encoder and the state of a ``DiscriminantHead``."""

    rooted: Tensor
    root: Tensor
    centre: Tensor
    noise: Tensor
    sharpness: Tensor
    rows: Tensor
    vector_mean: Tensor
    vector_weights: Tensor
    trials: tuple[Trial, ...] = ()  # of encoders, where this one was to be tuned
    last_fit: DiscriminantFit | None = None  # until it is asked for what it says of training images

    def __init__(self, spec: Spec, encoder: Encoder, source: LabelSource) -> None:
        super().__init__(spec, encoder)
        self.source = source
        if not self.encoder.untrained or encoder.code_size is not None:
            raise UsageError(
                "Method discriminant takes features as they are, from the data or a frozen encoder: leave out encoder.code_size, and "
                "set encoder.frozen=true with weights. To train an encoder choose another method, such as indicator."
            )
        k, d = len(spec.labels), self.encoder.code_size
        a = 0 if spec.labels.vectors is None else spec.labels.vectors.shape[1]
        self.reads_descriptions = a > 0
        prior: dict[str, tuple[int, ...]] = {"axes": (min(k, d), d), "values": (min(k, d),), "other": ()}
        shapes: dict[str, tuple[int, ...]] = {"root": (d, d), "centre": (d,), "rows": (k, d + 1)}
        shapes |= {"rooted": (), "noise": (), "sharpness": ()}
        shapes |= {f"spread_{name}": shape for name, shape in prior.items()}
        if a:
            shapes |= {"vector_mean": (a,), "vector_weights": (a, d)}
            shapes |= {"expected": (k, d)} | {f"told_{name}": shape for name, shape in prior.items()}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def export_head(self) -> DiscriminantHead:
        """Return what scores features as this model does, without torch."""
        descriptions = None
        if self.reads_descriptions:
            mean, weights = array(self.vector_mean), array(self.vector_weights)
            prior = self._prior("told")
            descriptions = Descriptions(source=self.source, mean=mean, weights=weights, prior=prior)
        root, centre = array(self.root), array(self.centre)
        noise, sharpness = float(self.noise), float(self.sharpness)
        return DiscriminantHead(
            labels=self.spec.labels,
            rows=array(self.rows),
            rooted=bool(self.rooted),
            whitening=Whitening(root=root, centre=centre, noise=noise, sharpness=sharpness),
            prior=self._prior("spread"),
            descriptions=descriptions,
        )

    def _prior(self, kind: str) -> Prior:
        axes, variances, other = (array(self.get_buffer(f"{kind}_{name}")) for name in PRIOR)
        noise = float(self.noise) / len(self.centre)
        return Prior(axes=axes, variances=variances, other_variance=float(other), noise_variance=noise)

    def _take(self, head: DiscriminantHead) -> None:
        """Take over the state of a head."""
        whitening, described = head.whitening, head.descriptions
        values = {"rooted": float(head.rooted), "rows": head.rows, "root": whitening.root, "centre": whitening.centre}
        values |= {"noise": whitening.noise, "sharpness": whitening.sharpness}
        values |= {f"spread_{name}": getattr(head.prior, field) for name, field in PRIOR.items()}
        if described is not None:
            values |= {"vector_mean": described.mean, "vector_weights": described.weights}
            values |= {f"told_{name}": getattr(described.prior, field) for name, field in PRIOR.items()}
        for name, value in values.items():
            getattr(self, name).copy_(torch.as_tensor(value))

    def take_fit(self) -> DiscriminantFit:
        """Return the last fit, and forget it."""
        fitted, self.last_fit = self.last_fit, None
        assert fitted is not None
        return fitted

    @torch.no_grad()
    def solve(self, images: Tensor, targets: Tensor, groups: Sequence[str] = ()) -> None:
        """Take over the closed form of training images and their targets ``[n]``."""
        features = self.encode_all(images, by=self.encoder)
        self.last_fit = fit_discriminant(array(features), array(targets), self.spec.labels, groups, self.source)
        self._take(self.last_fit.head)

    @torch.no_grad()
    def solve_on(self, data: TrainData) -> tuple[float, float]:
        """Solve for training images, and how sure scores are for validation images: their mean log-likelihood and accuracy."""
        self.solve(data.train.images, data.train.targets, data.train.groups)
        scores, targets = self.score(self.encode_all(data.val.images), self.rows), data.val.targets.to(self.device)
        factor = 1 / fit_temperature(scores.cpu(), targets.cpu())
        self.sharpness *= factor
        self.rows *= factor
        return -float(cross_entropy(scores * factor, targets)), float((scores.argmax(1) == targets).double().mean())

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` of unit length."""
        return torch.where(self.rooted > 0, root_features(embeddings), normalize(embeddings, dim=1))

    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label embeddings ``[k, d + 1]``."""
        return self._tensor(self.export_head().embed_labels(labels))

    def labels_from_examples(self, embeddings: Tensor, groups: Tensor) -> Tensor:
        """Return label embeddings ``[g, d + 1]`` of examples."""
        if not self.sharpness:
            raise UsageError("This model was not trained yet, so it cannot learn a label from examples.")
        return self._tensor(self.export_head().labels_from_examples(array(embeddings), array(groups)))

    def label_from_both(self, embeddings: Tensor, description: Labels) -> Tensor:
        """Return the label embedding ``[d + 1]`` of examples ``[n, d]`` and the description of one label."""
        return self._tensor(self.export_head().label_from_both(array(embeddings), description))

    def example_distances(self, embeddings: Tensor) -> Tensor:
        """Return the squared distances ``[n]`` of examples of a label ``[n, d]`` to its mean by the others."""
        return self._tensor(self.export_head().example_distances(array(embeddings)))

    def unfamiliarity(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return the squared distance ``[n]`` of images to the nearest mean of a label, in standard deviations."""
        scores = self.score(image_embeddings, label_embeddings)
        return mean_distances(image_embeddings, scores, self.centre, self.root, self.sharpness)

    @property
    def whitens(self) -> bool:
        """Whether some label had two images that differ."""
        return bool(self.noise)

    def whitened(self, embeddings: Tensor) -> Tensor:
        """Return embeddings ``[n, d]`` in which images of one label differ alike in every direction."""
        return (embeddings - self.centre) @ self.root

    def _tensor(self, values: Array) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)
