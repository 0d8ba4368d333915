"""zero_label: a named classifier from images and label names; not one image has a label.

Images are encoded by a network that was trained without these labels, their embeddings are clustered, and the clusters are named
by how alike labels are. There are two ways to name. ``structure`` matches the likeness of clusters to the likeness of labels
(``naming``), and, where there are images, their looks to what names say about looks (``kinds``). ``transport`` is that of Babu Sam et al. (2022): Sinkhorn clustering (stage II), then a linear layer is trained so
that its scores follow a prior over labels, with each cluster moving as one (stage III). All restarts are trained together, and
one is chosen by its loss alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labelwise.images.images import read_all
from labelwise.methods.shared.centring import PCA, Centring
from labelwise.methods.shared.linear import Encoder, HeadModel, array
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.clusters import cluster_starts, discriminant, nearest_centres, neighbour_means
from labelwise.methods.zero_label.head import NamedHead
from labelwise.methods.zero_label.kinds import looks_fit
from labelwise.methods.zero_label.label_prior import Source, chosen_source, label_similarity
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
from labelwise.methods.zero_label.transport import Clustering, LabelPrior, Matching, Restarts, transport_stages
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.data import TrainData
from labelwise.train.method import Method
from labelwise.train.model import LabelModel, Spec
from labelwise.train.stages import Stage
from labelwise.train.tensors import linear_scores, segment_mean

MOST_EMBEDDINGS = 20_000  # embeddings that structure naming clusters, and images it looks at
LOOKS_AT_ONCE = 256  # images


class Naming(NamedTuple):
    """The outcome of naming, the chosen restart first."""

    members: Tensor  # the cluster of each image [r, n]
    opinions: Tensor  # label embeddings [r, k, d + 1]
    names: Tensor  # the label of each cluster [r, k]
    votes: Tensor  # how probable each label is for each cluster of the chosen restart [k, k]
    losses: Tensor  # [r]


class NamedModel(HeadModel):
    """A linear model whose labels are named clusters; scores of an image compete."""

    exclusive = True
    infinite = (*HeadModel.infinite, "restarts.centre_losses", "restarts.head_losses")  # until there is a loss
    centres: Tensor  # mean embedding of each cluster [k, d], in the clusters' own order
    names: Tensor  # the label of each cluster [k]
    votes: Tensor  # how probable each label is for each cluster [k, k]
    # label embeddings of every restart [r, k, d + 1], the chosen one first, before a person named any cluster
    opinions: Tensor
    own_names: Tensor  # the label of each cluster in every restart [r, k], likewise
    clusters: Tensor  # this and the next two: see `naming.Evidence`
    overlaps: Tensor
    sizes: Tensor
    alike: Tensor  # how alike labels are [1, k, k]; zeros until it is fitted
    looks: Tensor  # how well the looks of clusters fit what names say [r, k, k]; zeros where they play no part

    def __init__(self, spec: Spec, method: "ZeroLabel") -> None:
        super().__init__(spec, method.encoder)
        k, d, r = len(spec.labels), self.encoder.code_size, method.restarts
        self.search = method.search
        self.centring = PCA(d, method.directions) if method.naming == "structure" else Centring(d)
        self.head.requires_grad_(False)
        # of transport naming, else None
        self.restarts = Restarts(r, k, d, method.clustering, method.matching) if method.naming == "transport" else None
        # what can be told about the run, see `naming_figures`; empty until it is over
        self.report: dict[str, Any] = {}
        shapes = {"centres": (k, d), "votes": (k, k), "opinions": (r, k, d + 1)}
        shapes |= {"clusters": (r, k, k), "overlaps": (r, k, k), "sizes": (r, k), "looks": (r, k, k)}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))
        self.register_buffer("names", torch.arange(k))
        self.register_buffer("own_names", torch.zeros(r, k, dtype=torch.int64).copy_(torch.arange(k)))
        self.register_buffer("alike", torch.zeros(1, k, k))

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]`` of unit length."""
        return self.centring(embeddings)  # type: ignore[no-any-return]

    @torch.no_grad()
    def fit_evidence(self, embeddings: Tensor, members: Tensor) -> None:
        """Keep what naming goes by, from the cluster of each embedding ``[n, d]`` in each restart ``[r, n]``."""
        evidence = Evidence.of(array(embeddings), array(members), array(self.alike[0]))
        for name in ("clusters", "overlaps", "sizes"):
            self.get_buffer(name).copy_(torch.from_numpy(getattr(evidence, name)))

    @torch.no_grad()
    def take(self, naming: Naming) -> None:
        """Answer with the label embeddings of the chosen restart."""
        self.opinions.copy_(naming.opinions)
        self.head.weight.copy_(naming.opinions[0, :, :-1])
        self.head.bias.copy_(naming.opinions[0, :, -1])
        self.own_names.copy_(naming.names)
        self.names.copy_(naming.names[0])
        self.votes.copy_(naming.votes)

    def about(self) -> dict[str, Any]:
        """Return the report of the naming, once it is over."""
        return {"naming": self.report}

    def export_head(self) -> NamedHead:
        """Return what scores features as this model does, without torch."""
        kept = ("names", "votes", "centres", "opinions", "own_names", "clusters", "overlaps", "sizes")
        parts: dict[str, Any] = {name: array(self.get_buffer(name)) for name in kept}
        return NamedHead(
            **self.head_parts(),
            rows=array(self.encode_labels(self.spec.labels)),
            competing=True,
            centre=self.centring.centre(),
            **parts,
            alike=array(self.alike[0]),
            looks=array(self.looks) if bool(self.looks.any()) else None,
            search=self.search,
        )


@dataclass(frozen=True, kw_only=True)
class ZeroLabel(Method):
    """Names clusters of images by what label names say about each other; reads no label of any image."""

    name: ClassVar[str] = "zero_label"
    needs: ClassVar[tuple[str, ...]] = ()

    encoder: Encoder = setting(
        Encoder(frozen=True), "What makes embeddings, never trained here. Random weights are ablation A."
    )
    naming: Literal["structure", "transport"] = setting("structure", "structure, or transport (the paper's).")
    prior: Source = setting("auto", "Where the similarity of labels comes from.")
    neighbours: int = setting(10, "Nearest words that stand for a name beside itself, with prior words or sentences.")
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
    clustering: Clustering = setting(Clustering(), "Stage II of transport naming.")
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
        """Yield stages II and III where naming is by transport; then name, and keep what adding a label needs."""
        assert isinstance(model, NamedModel)
        k, shares = len(data.labels), _tensor(data.labels.shares)
        neighbours = self.neighbours if self.naming == "structure" else 0
        model.alike.copy_(
            torch.from_numpy(label_similarity(model.spec.labels, self.prior, neighbours=neighbours))[None]
        )
        embeddings = self._embeddings(model, data)
        if model.restarts is None:
            naming = self._structure(model, embeddings, data)
        else:
            split = replace(data.train, images=embeddings)
            prior = LabelPrior.of(array(model.alike[0].double()), data.labels.shares, second=self.second)
            yield from transport_stages(model.restarts, prior, split, self.clustering, self.matching)
            naming = self._transport(model, model.restarts, embeddings)
        model.take(naming)
        answers = linear_scores(embeddings, model.encode_labels(data.labels)).argmax(1)
        model.centres.copy_(segment_mean(embeddings, answers, k)[naming.names[0]])
        model.fit_statistics(replace(data.train, targets=answers))
        model.report = {
            "prior": chosen_source(data.labels, self.prior),
            "losses": plain(naming.losses, 6),
            "shares": plain(torch.full((k,), 1 / k) if shares is None else shares),
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

    def _structure(self, model: NamedModel, embeddings: Tensor, data: TrainData) -> Naming:
        """Return the best of several clusterings, its clusters named, and the others."""
        k, shares = len(model.spec.labels), _tensor(model.spec.labels.shares)
        order = torch.randperm(len(embeddings), generator=torch.Generator().manual_seed(0))[:MOST_EMBEDDINGS]
        some = embeddings[order.to(embeddings.device)]
        sizes = torch.full((k,), 1 / k) if shares is None else shares.float()
        seed = int(torch.randint(2**31, ()))
        smooth = neighbour_means(some, self.smooth)
        starts = cluster_starts(smooth, k, self.restarts, seed, sizes if self.balanced else None)
        rows = torch.stack([discriminant(some, one.members, k) for one in starts])
        members = torch.stack([linear_scores(embeddings, own).argmax(1) for own in rows])
        losses = torch.tensor([one.inertia for one in starts])
        model.fit_evidence(embeddings, members)
        self._fit_looks(model, data, order.sort().values, members)
        tables = name_each(evidence_of(model.export_head()), self.search)
        votes = vote(evidence_of(model.export_head()), tables)
        every = np.stack([choose_names(votes), *(best_matching(table) for table in tables[1:])])
        names = torch.from_numpy(every).to(embeddings.device)
        opinions = torch.empty_like(rows).scatter_(1, names[..., None].expand_as(rows), rows)
        return Naming(members, opinions, names, torch.from_numpy(votes), losses)

    @torch.no_grad()
    def _fit_looks(self, model: NamedModel, data: TrainData, rows: Tensor, members: Tensor) -> None:
        """Keep how well the looks of clusters, over some images, fit what names say; members are ``[r, n]``."""
        source = chosen_source(data.labels, self.prior)
        if not self.looks or source not in ("words", "sentences") or len(data.train.shape) != 3:
            return

        images = data.train.source
        if images is None:
            return
        chosen, shape = images.select(rows.cpu().numpy()), data.train.shape
        starts = range(0, len(chosen), LOOKS_AT_ONCE)
        pieces = (chosen.select(range(start, min(start + LOOKS_AT_ONCE, len(chosen)))) for start in starts)
        seen = np.concatenate([looks(read_all(piece, shape)) for piece in pieces])
        pictures, k = torch.from_numpy(seen).double().to(model.device), len(data.labels)
        means = torch.stack([segment_mean(pictures, own, k) for own in members[:, rows.to(members.device)]])
        fits = looks_fit(array(means), data.labels.names, sentences=source == "sentences")
        model.looks.copy_(torch.from_numpy(fits))

    def _transport(self, model: NamedModel, restarts: Restarts, embeddings: Tensor) -> Naming:
        """Return the restart with the lowest loss, and the others; its clusters are the images it gives one label."""
        order = restarts.head_losses.argsort()
        opinions = restarts.rows()[order]
        model.fit_evidence(embeddings, torch.stack([linear_scores(embeddings, own).argmax(1) for own in opinions]))
        votes = model.overlaps.double().mean(0)
        names = torch.arange(len(model.spec.labels), device=embeddings.device).repeat(len(opinions), 1)
        centres = restarts.best_centres.expand(len(opinions), -1, -1)[order]
        members = nearest_centres(embeddings, centres)[0]
        return Naming(members, opinions, names, votes, restarts.head_losses[order])


def _tensor(array: Any) -> Tensor | None:
    return None if array is None else torch.as_tensor(array)
