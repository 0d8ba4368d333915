"""zero_label: a named classifier from images and label names; not one image has a label.

A network trained without these labels encodes the images, and the embeddings are clustered. Label similarities then name the
clusters in one of two ways. ``structure`` matches the similarity of clusters to that of labels (``naming``). With images, it
also matches their looks to what names imply (``kinds``). ``transport`` follows Babu Sam et al. (2022): Sinkhorn clustering
(stage II), then training a linear layer whose scores follow a prior over labels (stage III). All restarts train together, and
the loss alone chooses one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labelwise.core.arrays import Array
from labelwise.core.head import Head
from labelwise.images.describe.labels import Labels
from labelwise.images.images import read_all
from labelwise.methods.shared.centring import Centring
from labelwise.methods.shared.linear import Encoder, HeadModel, array
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.clusters import PCA, cluster_starts, discriminant, neighbour_means
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.kinds import looks_fit
from labelwise.methods.zero_label.label_prior import Source, choose_source, label_similarity
from labelwise.methods.zero_label.looks import looks
from labelwise.methods.zero_label.naming import (
    Evidence,
    choose_names,
    evidence_of,
    modal_shares,
    name_each,
    naming_figures,
    plain,
    vote,
)
from labelwise.methods.zero_label.transport import ClusteringSettings, LabelPrior, Matching, Restarts, transport_stages
from labelwise.support.errors import UsageError
from labelwise.support.rows import segment_mean as numpy_segment_mean
from labelwise.support.settings import check_range, setting
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import linear_scores, nearest_centres, segment_mean
from labelwise.train.train_data import TrainData

MOST_EMBEDDINGS = 20_000  # embeddings that structure naming clusters, and images it looks at
LOOKS_AT_ONCE = 256  # images


class Naming(NamedTuple):
    """The outcome of naming, the chosen restart first."""

    members: Tensor  # the cluster of each image [r, n]
    opinions: Tensor  # label embeddings [r, k, d + 1]
    names: Tensor  # the label of each cluster [r, k]
    votes: Array  # probability of each label for each cluster of the chosen restart [k, k]
    losses: Tensor  # [r]


class NamedModel(HeadModel):
    """A linear model whose labels are named clusters; scores of an image compete."""

    exclusive = True

    def __init__(self, spec: Spec, method: "ZeroLabel") -> None:
        super().__init__(spec, method.encoder)
        k, d, r = len(spec.labels), self.encoder.code_size, method.restarts
        self.centring = PCA(d, method.directions) if method.naming == "structure" else Centring(d)
        self.head.requires_grad_(False)
        # of transport naming, else None
        self.restarts = Restarts(r, k, d, method.clustering, method.matching) if method.naming == "transport" else None
        # the report of the run, see `naming_figures`; empty until it ends
        self.report: dict[str, Any] = {}
        shapes = {"votes": (k, k), "centres": (k, d), "opinions": (r, k, d + 1), "sizes": (r, k), "alike": (k, k)}
        shapes |= {"clusters": (r, k, k), "overlaps": (r, k, k)}
        # clusters and names for the head, see ``NamedHead``
        self.known: dict[str, Any] = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        self.known |= {"names": np.arange(k), "own_names": np.tile(np.arange(k), (r, 1)), "looks": None}
        self.known["search"] = method.search

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` of unit length."""
        return self.centring(embeddings)  # type: ignore[no-any-return]

    @torch.no_grad()
    def take(self, naming: Naming, evidence: Evidence, embeddings: Tensor) -> Tensor:
        """Answer with the label embeddings of the chosen restart, and return the answers to embeddings ``[n]``."""
        self.head.weight.copy_(naming.opinions[0, :, :-1])
        self.head.bias.copy_(naming.opinions[0, :, -1])
        answers = linear_scores(embeddings, naming.opinions[0]).argmax(1)
        centres = segment_mean(embeddings, answers, len(self.spec.labels))[naming.names[0]]
        names, votes = array(naming.names), naming.votes.astype(np.float32)
        self.known |= {"names": names[0], "own_names": names, "votes": votes}
        self.known |= {"opinions": array(naming.opinions), "centres": array(centres), **evidence.arrays()}
        return answers

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        super().restore(head)
        assert isinstance(head, NamedHead)
        self.known = {name: getattr(head, name) for name in self.known}
        with torch.no_grad():  # a person may have named clusters since
            self.head.weight.copy_(torch.from_numpy(head.rows[:, :-1]))
            self.head.bias.copy_(torch.from_numpy(head.rows[:, -1]))

    def about(self) -> dict[str, Any]:
        """Return the report of the naming, after training."""
        return {"naming": self.report}

    def export_head(self) -> NamedHead:
        """Return the equivalent NumPy head."""
        rows = array(self.encode_labels(self.spec.labels))
        return NamedHead(**self.head_parts(), rows=rows, competing=True, centre=self.centring.centre(), **self.known)


@dataclass(frozen=True, kw_only=True)
class ZeroLabel(Method):
    """Names clusters of images by the relations of label names; reads no label of any image."""

    name: ClassVar[str] = "zero_label"
    needs: ClassVar[tuple[str, ...]] = ()

    encoder: Encoder = setting(
        Encoder(frozen=True), "What makes embeddings, never trained here. Random weights are ablation A."
    )
    naming: Literal["structure", "transport"] = setting("structure", "structure, or transport (the paper's).")
    prior: Source = setting("auto", "Where the similarity of labels comes from.")
    neighbours: int = setting(
        10, "Nearest words that represent a name in addition to itself, with prior words or sentences."
    )
    looks: bool = setting(
        True, "Compare the looks of images (colours, edges) too, with structure naming and prior words or sentences."
    )
    second: float = setting(
        0.2, "The prior's value at the second most similar label; 0.2 in the paper, 0.1 in the authors' code."
    )
    restarts: int = setting(10, "Number of restarts; 50 in the paper.")
    centre: bool = setting(True, "Centre embeddings before normalising them; not in the paper.")
    directions: int = setting(128, "Most directions of centred embeddings that structure naming keeps.")
    smooth: int = setting(
        20, "Structure naming clusters means of this many neighbouring embeddings; 1: the embeddings."
    )
    balanced: bool = setting(True, "Structure naming makes clusters as large as label shares say, else equal.")
    search: int = setting(500, "Random matchings that structure naming improves, per restart.")
    clustering: ClusteringSettings = setting(ClusteringSettings(), "Stage II of transport naming.")
    matching: Matching = setting(Matching(), "Stage III of transport naming.")

    def __post_init__(self) -> None:
        if self.naming not in ("structure", "transport"):
            raise UsageError(f'Naming is by "structure" or by "transport"; given "{self.naming}".')
        check_range(self, "at least 1", "restarts", "search", "directions")
        if self.matching.guided and self.matching.gradient == "envelope":
            raise UsageError(
                'A guided loss has no envelope gradient. Set matching.gradient to "implicit" or "unrolled".'
            )

    def build(self, spec: Spec) -> NamedModel:
        """Return the untrained model."""
        return NamedModel(spec, self)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield stages II and III of transport naming; then name, and fit the statistics to add labels."""
        assert isinstance(model, NamedModel)
        k, shares = len(data.labels), data.labels.shares
        similarity = label_similarity(data.labels, self.prior, neighbours=self.neighbours * (model.restarts is None))
        embeddings = self._embeddings(model, data)
        if model.restarts is None:
            naming, evidence = self._structure(data, embeddings, similarity)
        else:
            split = replace(data.train, images=embeddings)
            prior = LabelPrior.of(similarity.astype(np.float32).astype(np.float64), shares, second=self.second)
            yield from transport_stages(model.restarts, prior, split, self.clustering, self.matching)
            naming, evidence = self._transport(data.labels, model.restarts, embeddings, similarity)
        answers = model.take(naming, evidence, embeddings)
        model.fit_statistics(replace(data.train, targets=answers))
        model.report = {
            "prior": choose_source(data.labels, self.prior),
            "losses": plain(naming.losses, 6),
            "shares": plain(np.full(k, 1 / k) if shares is None else np.asarray(shares)),
            **naming_figures(model.export_head(), array(naming.names)),
            "cohesion": plain(modal_shares(array(naming.members[0]), array(answers), k)),
        }

    @torch.no_grad()
    def _embeddings(self, model: NamedModel, data: TrainData) -> Tensor:
        """Return the embeddings of the training images ``[n, d]``, once the model's normalisation is fitted to them."""
        images = data.train.images
        if images.ndim == 4:
            model.encoder.fit_normalisation(images)
        if model.encoder.frozen:
            model.encoder.fit_features(model.encoder.features(images))
        if self.centre:
            model.centring.fit(model.encode_all(images, by=model.encoder))
        return model.encode_all(images)

    def _structure(self, data: TrainData, embeddings: Tensor, similarity: Array) -> tuple[Naming, Evidence]:
        """Return the best of several clusterings, its clusters named, and the others, with the evidence for the names."""
        labels, k = data.labels, len(data.labels)
        order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))[:MOST_EMBEDDINGS]
        some = embeddings[order.to(embeddings.device)]
        sizes = torch.full((k,), 1 / k) if labels.shares is None else torch.as_tensor(labels.shares).float()
        seed = int(torch.randint(2**31, ()))
        smooth = neighbour_means(some, self.smooth)
        starts = cluster_starts(smooth, k, self.restarts, seed, sizes if self.balanced else None)
        rows = torch.stack([discriminant(some, start.members, k) for start in starts])
        members = torch.stack([linear_scores(embeddings, own).argmax(1) for own in rows])
        evidence = Evidence.of(array(embeddings), array(members), similarity)
        evidence = replace(evidence, looks=self._looks(data, order.sort().values.numpy(), array(members)))
        evidence = evidence_of(labels, evidence.arrays())  # the same as when clusters are named again
        tables = name_each(evidence, self.search)
        votes = vote(evidence, tables)
        names = torch.from_numpy(np.stack([choose_names(votes), *(best_matching(table) for table in tables[1:])]))
        opinions = torch.empty_like(rows).scatter_(1, names.to(rows.device)[..., None].expand_as(rows), rows)
        losses = torch.tensor([start.inertia for start in starts])
        return Naming(members, opinions, names.to(rows.device), votes, losses), evidence

    def _looks(self, data: TrainData, rows: Array, members: Array) -> Array | None:
        """Return how well the looks of clusters, over a sample of images, fit the names ``[r, k, k]``; members are ``[r, n]``."""
        source, images = choose_source(data.labels, self.prior), data.train.source
        if not self.looks or source not in ("words", "sentences") or len(data.train.shape) != 3 or images is None:
            return None
        parts = np.split(rows, range(LOOKS_AT_ONCE, len(rows), LOOKS_AT_ONCE))
        shapes = np.concatenate([looks(read_all(images.select(part), data.train.shape)) for part in parts])
        means = np.stack(
            [numpy_segment_mean(shapes.astype(np.float64), own, len(data.labels)) for own in members[:, rows]]
        )
        return looks_fit(means, data.labels.names, sentences=source == "sentences").astype(np.float32)

    def _transport(
        self, labels: Labels, restarts: Restarts, embeddings: Tensor, similarity: Array
    ) -> tuple[Naming, Evidence]:
        """Return the restart with the lowest loss, and the others; its clusters are the images it gives one label."""
        order = restarts.head_losses.argsort()
        opinions = restarts.rows()[order]
        answers = torch.stack([linear_scores(embeddings, own).argmax(1) for own in opinions])
        evidence = Evidence.of(array(embeddings), array(answers), similarity)
        names = torch.arange(len(labels), device=embeddings.device).repeat(len(opinions), 1)
        centres = restarts.best_centres.expand(len(opinions), -1, -1)[order]
        members = nearest_centres(embeddings, centres)[0]
        return Naming(members, opinions, names, evidence.overlaps.mean(0), restarts.head_losses[order]), evidence
