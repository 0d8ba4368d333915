"""How the golden classifiers are fitted: the words of the shell for every method, on the small data.

``FITS`` are short runs, which must end with the same scores as before; ``FOLDERS`` are the kept classifiers, trained a little longer,
and what was made of them by teaching and calibrating.
"""

SEED = "--seed 3 --encoder none"
SMALL = f"{SEED} --set encoder.width=3 --set batch=12 --set optimizer.lr=0.05"
SHAPES, SEVERAL, GRADES = "fit data/shapes.npz", "fit data/several.npz", "fit data/grades/grades.npz"
DESCRIBED, FEATURES = "fit data/described --size 8", "fit data/features/features.csv"
FROZEN = f"{SEED} --set encoder.weights=folders/encoder.safetensors --set encoder.frozen=true"
ENCODER = "pretrain data/shapes.npz --kind simclr --set encoder.width=2 --set encoder.size=16 --set epochs=4"
READER = "--set filters=[4,6] --set hidden=4 --set code_size=8"
CLUSTERS = f"{SHAPES} --method zero_label {FROZEN}"

# The method of each run and its settings, with the number of epochs of the kept classifier (None: it has no epochs).
KEPT: dict[str, tuple[str, int | None]] = {
    "indicator": (f"{SHAPES} --method indicator {SMALL}", 30),
    "prototype": (f"{SHAPES} --method prototype {SMALL} --set hidden=8", 30),
    "softmax": (f"{SHAPES} --method softmax {SMALL}", 30),
    "multilabel": (f"{SEVERAL} --method multilabel {SMALL}", 12),
    "supcon": (f"{SHAPES} --method supcon {SMALL} --set projection_size=4 --set head_epochs=10", 30),
    "clarel": (f"{DESCRIBED} --method clarel {SMALL} --set code_size=8 --set encoder_epochs=20", 30),
    "eszsl": (f"{DESCRIBED} --method eszsl {SMALL}", 20),
    "ridge": (f"{FEATURES} --method ridge {SEED}", None),
    "devise": (f"{FEATURES} --method devise {SEED}", 20),
    "izf": (f"{FEATURES} --method izf {SEED}", None),
    "cgan": (f"{FEATURES} --method cgan {SEED} --set hidden=8", 3),
    "zero_label": (f"{CLUSTERS} --set prior=words --set restarts=3 --set search=20 --set directions=8 --set smooth=5", None),
    "discriminant": (f"{FEATURES} --method discriminant {SEED}", None),
    # Other settings of the same methods, other data, other networks.
    "several": (f"{SEVERAL} --method indicator {SMALL} --set negatives=1", 12),
    "grades": (f"{GRADES} --method indicator {SMALL}", 30),
    "features": (f"{FEATURES} --method indicator {SEED}", 10),
    "frozen": (f"{SHAPES} --method indicator {FROZEN}", 10),
    "hard": (
        f"{SHAPES} --method indicator {SMALL} --set negatives=2 --set sampling=hard --set curriculum=[1] --set temperature=0.5 "
        "--set activation=tanh --set augment.flip=true --set augment.rotation=10 --set augment.hue=0.1 --set augment.erase=4",
        2,
    ),
    "prototypes": (
        f"{SHAPES} --method prototype {SMALL} --set head=dol --set similarity=both --set symmetric=mean --set layers=2 "
        "--set hidden=8 --set prototypes=sgd",
        8,
    ),
    "adversarial": (f"{SHAPES} --method softmax {SMALL} --set adversarial.steps=2 --set average=0.9", 4),
    "sentences": (f"{FEATURES} --method clarel {SEED} --set reader=words {READER}", 10),
    "flow": (
        f"{FEATURES} --method izf {SEED} --set hidden=8 --set blocks=2 --set start=random --set head=softmax --set act_norm=true",
        3,
    ),
    "transport": (
        f"{CLUSTERS} --set naming=transport --set restarts=2 --set clustering.steps=10 --set clustering.batch=20 "
        "--set matching.steps=10 --set matching.batch=20",
        None,
    ),
    "resnet18": (f"{SHAPES} --method softmax {SEED} --set encoder.backbone=resnet18 --set encoder.width=1", 3),
    "resnet50": (f"{SHAPES} --method softmax {SEED} --set encoder.backbone=resnet50 --set encoder.width=1", 3),
    "resnet12": (f"{SHAPES} --method softmax {SEED} --set encoder.backbone=resnet12 --set encoder.width=1", 3),
    "vgg": (f"{SHAPES} --method softmax {SEED} --set encoder.backbone=vgg11_bn --set encoder.width=1", 3),
    "lenet": (f"{SHAPES} --method softmax {SEED} --set encoder.backbone=lenet --set encoder.width=1", 3),
    "sounds": (f"fit data/other/sounds --method softmax {SEED} --set encoder.backbone=xvector_8k --set encoder.width=1", 3),
}  # fmt: skip
EPOCHS = 2  # of the short runs
UNSTABLE = "resnet50"  # one channel through 50 layers: two threads in place of one end with quite other scores

FITS = {
    name: words if epochs is None else f"{words} --set epochs={EPOCHS}"
    for name, (words, epochs) in KEPT.items()
    if name != UNSTABLE
}
MADE = {
    "taught": "teach folders/indicator.lw 'green cross' data/green-cross",
    "told": "teach folders/clarel.lw 'green square with a hat' --text 'a green square' --text 'this square is green'",
    "listed": "teach folders/eszsl.lw 'blue cross' --vector 0,0,1,0,0,1",
    "forgetful": "forget folders/taught.lw 'red disc'",
    "calibrated": "calibrate folders/softmax.lw data/shapes.npz --known-rate 0.8 --false-accepts 0.2",
    "whitened": "calibrate folders/indicator.lw data/shapes.npz --by whitened",
    "similar": "calibrate folders/prototype.lw data/shapes.npz --by sum",
    "named": "name folders/zero_label.lw --answer '1=blue disc' --answer '0=red square'",
}
FOLDERS = {
    **{name: words if epochs is None else f"{words} --set epochs={epochs}" for name, (words, epochs) in KEPT.items()},
    **MADE,
}
OTHERS = ("served",)  # see ``make``: it has changes that its service keeps
DATA = {  # what each kept classifier is asked about
    **{name: words.split()[1] if words.startswith("fit") else "data/shapes.npz" for name, words in FOLDERS.items()},
    **dict.fromkeys(("told", "listed"), "data/described"),
    **dict.fromkeys(OTHERS, "data/shapes.npz"),
}
