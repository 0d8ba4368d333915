"""Clarel: images and sentences in one space, trained by retrieval (algorithm 1 of the paper).

An image should be nearest to its own text among the texts of the batch, and a text to its own image; two classifiers, one
on image embeddings and one on text embeddings, keep labels apart. A new label is the mean embedding of its sentences.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labelwise.core.arrays import LENGTH
from labelwise.core.head import Head
from labelwise.images.describe.labels import Labels
from labelwise.methods.clarel.caption_retrieval import distances, retrieval_loss
from labelwise.methods.clarel.head import ClarelHead
from labelwise.methods.clarel.sentences import ImageTexts, TextReader, TrainableSentenceReader, TrainableVectorReader
from labelwise.methods.shared.centring import Centring
from labelwise.methods.shared.image_method import ImageMethod
from labelwise.methods.shared.label_source import LabelSource
from labelwise.methods.shared.linear import EncoderModel, array, projection_of
from labelwise.methods.shared.zero_shot import encoder_stage
from labelwise.support.errors import UsageError
from labelwise.support.settings import check_range, setting
from labelwise.train.augment import Augment
from labelwise.train.batches import Batch
from labelwise.train.distribution import whole_batch
from labelwise.train.model import LabelModel, Spec
from labelwise.train.optimizers import Optimizer
from labelwise.train.stages import Loss, Stage
from labelwise.train.tensors import segment_mean
from labelwise.train.train_data import TrainData

PAIRS = 500  # images whose own texts serve as labels if there are none


class ClarelModel(EncoderModel):
    """An image side and a text side that end in one space; the score is minus the Euclidean distance."""

    def __init__(self, spec: Spec, settings: "Clarel") -> None:
        super().__init__(spec, settings.encoder)
        d, e, k = self.encoder.code_size, settings.code_size, len(spec.labels)
        self.dropout = nn.Dropout(settings.dropout)
        end_to_end = settings.end_to_end and not self.encoder.untrained
        self.centre = None if end_to_end else Centring(d, settings.power)
        # classifies what the image encoder makes, where that is trained first
        self.encoder_head = nn.Linear(d, k) if not (end_to_end or self.encoder.untrained) else None
        self.project = nn.Linear(d, e)
        self.source = settings.label_source
        self.reader: TextReader = settings.build_reader(spec.labels)
        self.image_head = nn.Linear(e, k)  # classifies image embeddings among the trained labels; serves training only
        self.text_head = nn.Linear(e, k)  # the same for text embeddings
        # how images relate to texts, see ``ClarelHead``
        self.places: dict[str, Any] = {name: np.zeros(e, np.float32) for name in ("image_mean", "text_mean")}
        self.places |= dict.fromkeys(("reach", "apart", "within"), 1.0)

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:
        """Return minus the distance of every pair ``[n, k]``."""
        return -distances(image_embeddings, label_embeddings)

    def export_head(self) -> ClarelHead:
        """Return the equivalent NumPy head."""
        return ClarelHead(
            labels=self.spec.labels,
            width=self.feature_width,
            source=self.source,
            projection=projection_of(self.encoder),
            centre=None if self.centre is None else self.centre.centre(),
            weight=array(self.project.weight),
            bias=array(self.project.bias),
            **self.reader.without_torch(),
            **self.places,
        )

    def restore(self, head: Head) -> None:
        """Load from a head what the state does not hold."""
        self.places = {name: getattr(head, name) for name in self.places}

    @torch.no_grad()
    def fit_examples(self, data: TrainData) -> None:
        """Learn how mean image embeddings of labels relate to label embeddings, which have an offset from images."""
        embeddings = self.encode_all(data.train.images)
        if bool((data.train.targets >= 0).all()):
            images = segment_mean(embeddings, data.train.targets, len(data.labels))
            spread_within = float((embeddings - images[data.train.targets]).square().sum(1).mean())
            texts = self.encode_labels(data.labels).float()
        else:  # without labels, each image is one
            some = data.train.texts[:PAIRS]
            images = embeddings[: len(some)]
            texts = self.encode_labels(Labels(names=tuple(map(str, range(len(some)))), texts=some)).float()
            spread_within = 0.0
        image_mean, text_mean = images.mean(0), texts.mean(0)
        distance, centred = float((images - texts).square().sum(1).mean()), images - image_mean
        reach = float(((texts - text_mean) * centred).sum() / centred.square().sum().clamp_min(1e-12))
        self.places = {"image_mean": array(image_mean), "text_mean": array(text_mean)}
        self.places |= {"reach": reach, "apart": distance, "within": spread_within}

    def finish(self, embeddings: Tensor) -> Tensor:
        """Return image embeddings ``[n, e]`` from encoded images."""
        rows = embeddings if self.centre is None else self.centre(embeddings) * LENGTH
        return self.project(self.dropout(rows))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Clarel(ImageMethod):
    """Zero-shot from sentences with a retrieval loss."""

    name: ClassVar[str] = "clarel"
    needs: ClassVar[tuple[str, ...]] = ("targets", "descriptions")
    zero_shot: ClassVar[bool] = True

    epochs: int = 80
    optimizer: Optimizer = field(default_factory=Optimizer)
    clip: float | None = 1.0
    reader: Literal["words", "vectors"] = setting(
        "vectors",
        "words: an LSTM over word vectors, as in the paper; vectors: one frozen vector per sentence or label.",
    )
    sentences: str = setting(
        "words",
        "With vectors, what embeds a sentence; with words, the word vectors: words (25,000, included) or glove.",
    )
    filters: tuple[int, ...] = setting((128, 256), "Width of each convolution block of words.")
    hidden: int = setting(512, "Width of the LSTM in each direction.")
    longest: int = setting(30, "Words of a sentence that are read.")
    drawn: int | None = setting(2, "Sentences drawn per image and step; none: all.")
    label_texts: float = setting(0.5, "Share of images described by the sentences of their label; 0 in the paper.")
    code_size: int = setting(256, "Size of the common space (e).")
    end_to_end: bool = setting(
        False, "Train the image encoder with the retrieval loss; otherwise it is trained first on the seen labels."
    )
    encoder_epochs: int = setting(20, "Epochs of training the image encoder first.")
    share: float = setting(0.5, "Lambda: 0 finds the image of a text, 1 the text of an image.")
    class_weight: float = setting(0.5, "Kappa: 0 uses no labels, 1 labels alone.")
    sharpness: float = setting(4.0, "Factor on distances in the softmax of training; 1 in the paper.")
    dropout: float = setting(0.25, "Dropout before the last layer of either side.")
    power: float = setting(0.5, "Power of frozen features, with their sign, before normalising.")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "from 0 to 1", "share", "class_weight", "label_texts")
        check_range(self, "from 0 to below 1", "dropout")
        check_range(self, "above 0 and at most 1", "power")
        check_range(self, "above 0", "sharpness")
        check_range(self, "at least 1", "encoder_epochs", "drawn")

    @property
    def uses_targets(self) -> bool:
        """Whether training needs labelled images; otherwise images with their own sentences suffice."""
        return self.class_weight > 0

    def describe(self, labels: Labels) -> Labels:
        """Return the labels with their sentence vectors, where the reader takes vectors."""
        if self.reader == "words":
            return labels
        source = replace(self.label_source, source="vectors" if labels.texts is None else "texts")
        return replace(labels, vectors=torch.from_numpy(source.of(labels)))

    @property
    def label_source(self) -> LabelSource:
        """Where the vectors of labels come from, for a reader of vectors."""
        return LabelSource(sentences=self.sentences)

    def build(self, spec: Spec) -> ClarelModel:
        """Return the untrained model."""
        return ClarelModel(spec, self)

    def build_reader(self, labels: Labels) -> TextReader:
        """Return the untrained text side."""
        if self.reader == "vectors":
            return TrainableVectorReader(labels, self.label_source, self.code_size, self.dropout)
        return TrainableSentenceReader(
            self.sentences, self.longest, self.code_size, filters=self.filters, hidden=self.hidden, dropout=self.dropout
        )

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the stage of the image encoder, if it is trained separately, and that of the common space."""
        assert isinstance(model, ClarelModel)
        texts = model.reader.read(data)
        if not model.encoder.untrained:
            model.encoder.fit_normalisation(data.train.images)
        if model.encoder_head is not None:
            if bool((data.train.targets < 0).any()):
                raise UsageError(
                    "Without labels the image encoder can only be trained with the texts: set end_to_end=true."
                )
            first = replace(self, epochs=self.encoder_epochs)
            yield encoder_stage(first, model.encoder, model.encoder_head, data)
        if model.centre is None:
            yield self.stage(self.name, model, data, self.loss(model, texts, model.encode_images))
        else:
            embeddings = model.encode_all(data.train.images, by=model.encoder)
            model.centre.fit(embeddings)
            frozen_data = replace(data, train=replace(data.train, images=embeddings))
            sides = nn.ModuleList([model.project, model.reader, model.image_head, model.text_head])
            yield replace(self, augment=Augment()).stage(
                self.name, sides, frozen_data, self.loss(model, texts, model.finish)
            )
        model.fit_examples(data)

    def loss(self, model: ClarelModel, texts: ImageTexts, encode: Callable[[Tensor], Tensor]) -> Loss:
        """Return the four terms of the loss; ``encode`` makes image embeddings of the images of a batch."""
        kappa = self.class_weight

        def of_batch(batch: Batch) -> dict[str, Tensor]:
            pairs = torch.stack(
                [encode(batch.images).float(), texts.encode(batch, self.drawn, self.label_texts).float()], 1
            )
            pairs, targets = whole_batch(pairs, batch)
            images, read = pairs.unbind(1)
            same = targets[:, None] == targets if texts.shared else None
            of_text, of_image = retrieval_loss(images * self.sharpness, read * self.sharpness, self.share, same)
            terms = {"text retrieval": (1 - kappa) * of_text, "image retrieval": (1 - kappa) * of_image}
            if kappa:
                terms["image choice"] = kappa / 2 * cross_entropy(model.image_head(images), targets)
                terms["text choice"] = kappa / 2 * cross_entropy(model.text_head(read), targets)
            return terms

        return of_batch
