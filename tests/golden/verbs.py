"""What the verbs of the shell print and write, each verb a list of commands and of looks at the files that they wrote."""

import shlex
from functools import partial
from typing import Any

import labelwise as lw
from tests.golden import outside
from tests.golden.looks import Look, arrays, folder, matrices, names, network, picture, tensors, text

METHODS = sorted(lw.methods.METHODS)


def run(verb: str) -> dict[str, Any]:
    """Return what each command of a verb does, and what the files are like that were written."""
    found: dict[str, Any] = {}
    for step in VERBS[verb]:
        if isinstance(step, str):
            found[step] = outside.plain(outside.shell(*shlex.split(step)))
        else:
            found[step[0]] = outside.plain(step[1]())
    return found


PHOTO, DISC, ALL = "'data/photos/0 red square.png'", "'data/photos/3 red disc.png'", "data/photos data/strange"
SHAPES, WORDS = "data/shapes.npz", "data/described"
EVERY = (
    "fit", "pretrain", "name", "classify", "ask", "rank", "verify", "retrieve", "teach", "forget", "outliers", "explain", "imagine",
    "evaluate", "report", "analyse", "attack", "calibrate", "reproduce", "serve", "export", "demo", "data", "data list", "data where",
    "data get", "data check", "data split", "data encode", "data zero-shot", "settings",
)  # fmt: skip
QUICK = (
    "clarel/table3", "indicator/table8", "indicator/table11", "prototype/fewshot", "prototype/table3",
    "prototype/figure1", "zero_label/table1", "zero_label/table3",
)  # fmt: skip

VERBS: dict[str, tuple[str | Look, ...]] = {
    "classify": (
        *(f"classify folders/{name}.lw {ALL} --json" for name in ("indicator", "softmax", "supcon", "taught", "served")),
        f"classify folders/prototype.lw {PHOTO} --top 2 --json",
        "classify folders/several.lw data/squares --json",
        "classify folders/multilabel.lw data/squares --json",
        f"classify folders/clarel.lw {ALL} --json",
        "classify folders/indicator.lw data/damaged data/green-cross --json",
        f"classify folders/indicator.lw {ALL}",
        "classify folders/several.lw data/squares",
        "classify folders/indicator.lw data/damaged --strict",
        "classify folders/ridge.lw data/photos",
        "classify folders/indicator.lw data/nothing.png",
    ),
    "ask": (
        *(f"ask folders/{name}.lw {PHOTO} 'red square' --json" for name in ("indicator", "softmax", "clarel", "named")),
        "ask folders/several.lw data/squares/61.png green --json",
        f"ask folders/indicator.lw {PHOTO} 'red square'",
        f"ask folders/indicator.lw {PHOTO} 'red squares'",
    ),
    "rank": (
        "rank folders/grades.lw data/grades/pictures --json",
        "rank folders/grades.lw data/grades/pictures",
        f"rank folders/indicator.lw {PHOTO} {DISC} --json "
        "--order 'red square,red disc,blue disc,blue square,green disc,green square'",
        f"rank folders/indicator.lw {PHOTO}",
        f"rank folders/several.lw {PHOTO}",
    ),
    "verify": (
        *(f"verify folders/{name}.lw {PHOTO} {DISC} --json" for name in ("indicator", "calibrated", "whitened", "similar")),
        "verify folders/whitened.lw --pairs data/pairs.csv --json",
        "verify folders/whitened.lw --pairs data/pairs.csv",
        f"verify folders/several.lw {PHOTO} {DISC}",
        f"verify folders/indicator.lw {PHOTO}",
    ),
    "retrieve": (
        f"retrieve folders/indicator.lw {PHOTO} --gallery data/gallery --top 4 --json",
        f"retrieve folders/indicator.lw {PHOTO} --gallery data/gallery --top 4 --by whitened --json",
        f"retrieve folders/prototype.lw {PHOTO} --gallery data/gallery --top 4 --by sum --json",
        f"retrieve folders/prototype.lw {PHOTO} --gallery data/gallery --json --index gallery.safetensors",
        tensors("gallery.safetensors"),
        f"retrieve folders/prototype.lw {DISC} --gallery gallery.safetensors --json",
        f"retrieve folders/indicator.lw {DISC} --gallery gallery.safetensors",
        f"retrieve folders/indicator.lw {DISC} --gallery data/gallery --by sum",
        "retrieve folders/indicator.lw data/gallery/disc --gallery data/gallery --top 1",
    ),
    "teach": (
        "teach folders/indicator.lw 'green cross' data/green-cross --out a.lw",
        folder("a.lw"),
        f"teach folders/softmax.lw 'green cross' data/green-cross/0.png data/green-cross/1.png {PHOTO} --out b.lw",
        folder("b.lw"),
        "teach folders/clarel.lw hat --text 'a green square' --out c.lw",
        folder("c.lw", WORDS),
        "teach folders/eszsl.lw 'blue cross' --vector 0,0,1,0,0,1 --out d.lw",
        folder("d.lw", WORDS),
        "teach folders/several.lw new data/green-cross --out e.lw",
        folder("e.lw", "data/several.npz"),
        "teach folders/indicator.lw 'red disc' data/green-cross --out f.lw",
        "teach folders/indicator.lw owl --text 'a grey owl' --out f.lw",
        "teach folders/indicator.lw owl --out f.lw",
        "teach folders/indicator.lw owl data/green-cross --out a.lw",
    ),
    "forget": (
        "forget folders/taught.lw 'red disc' --out a.lw",
        folder("a.lw"),
        "forget folders/taught.lw 'green cross' --out a.lw --overwrite",
        folder("a.lw"),
        "forget folders/clarel.lw 'red cross' --out c.lw",
        folder("c.lw", WORDS),
        "forget folders/indicator.lw owl --out d.lw",
    ),
    "outliers": (
        *(f"outliers folders/{name}.lw {ALL} --json" for name in ("indicator", "calibrated", "prototype")),
        f"outliers folders/clarel.lw {ALL} --json",
        "outliers folders/indicator.lw data/strange --json",
        "outliers folders/indicator.lw data/strange",
    ),
    "explain": (
        f"explain folders/indicator.lw {PHOTO} 'red disc' --out why.png --json",
        picture("why.png"),
        f"explain folders/softmax.lw {DISC} --out why.png --json",
        "explain folders/clarel.lw 'data/described/test/red cross/0.png' 'red cross' --out why.png --json",
        f"explain folders/indicator.lw {PHOTO} --out why.png",
        f"explain folders/indicator.lw {PHOTO} --out why.txt",
        f"explain folders/indicator.lw {PHOTO} owl",
    ),
    "imagine": (
        "imagine folders/izf.lw data/features/features.csv --count 4 --json",
        "imagine folders/cgan.lw data/features/features.csv --label 'red cross' --label 'red disc' --count 3 --seed 2 --json",
        "imagine folders/izf.lw data/features/features.csv --count 4 --out imagined",
        names("imagined"),
        f"imagine folders/indicator.lw {SHAPES} --json",
    ),
    "evaluate": (
        *(f"evaluate folders/{name}.lw {SHAPES} --json" for name in ("indicator", "prototype", "calibrated", "named")),
        f"evaluate folders/taught.lw {SHAPES} --split val --json",
        f"evaluate folders/indicator.lw {SHAPES} --split train --json",
        f"evaluate folders/indicator.lw {SHAPES} --unknown data/grades/grades.npz --json",
        f"evaluate folders/clarel.lw {WORDS} --json --out curve.png",
        picture("curve.png"),
        *(f"evaluate folders/{name}.lw data/features/features.csv --json" for name in ("ridge", "izf", "features")),
        "evaluate folders/grades.lw data/grades/grades.npz --json",
        "evaluate folders/several.lw data/several.npz --json",
        "evaluate folders/indicator.lw data/grades/grades.npz --json",
        f"evaluate folders/prototype.lw {SHAPES}",
        f"evaluate folders/clarel.lw {WORDS}",
        "evaluate folders/grades.lw data/grades/grades.npz",
        "evaluate folders/several.lw data/several.npz",
    ),
    "report": (
        f"report folders/indicator.lw {SHAPES} --compare folders/softmax.lw --unknown data/strange --json --out a.html",
        f"report folders/clarel.lw {WORDS} --json --out b.html",
        "report folders/several.lw data/several.npz --json --out c.html",
        "report folders/grades.lw data/grades/grades.npz --json --out d.html",
        "report folders/izf.lw data/features/features.csv --json --out e.html",
        "report folders/izf.lw data/features/features.csv --out e.pdf",
    ),
    "analyse": (
        *(
            f"analyse folders/indicator.lw {SHAPES} --what {what} --json"
            for what in ("saliency", "probe", "neighbours", "answers", "joint", "calibration")
        ),
        f"analyse folders/softmax.lw {SHAPES} --what answers --limit 10 --seed 1 --json",
        "analyse folders/taught.lw --what neighbours",
        f"analyse folders/prototype.lw {SHAPES} --what joint",
        f"analyse folders/softmax.lw {SHAPES} --what joint --out joint.png",
        picture("joint.png"),
        f"analyse folders/indicator.lw {SHAPES} --what answers",
        f"analyse folders/indicator.lw {SHAPES} --what calibration",
        "analyse folders/indicator.lw --what probe",
    ),
    "attack": (
        f"attack folders/indicator.lw {SHAPES} --images 8 --queries 20 --json",
        f"attack folders/softmax.lw {SHAPES} --images 4 --queries 5 --epsilon 0.2 --longer 2 "
        "--surrogate folders/indicator.lw --out fooled --json",
        names("fooled"),
        f"attack folders/indicator.lw {SHAPES} --images 4 --queries 5 --epsilon 2/255",
        "attack folders/izf.lw data/features/features.csv",
    ),
    "calibrate": (
        f"calibrate folders/indicator.lw {SHAPES} --out a.lw",
        folder("a.lw"),
        f"calibrate folders/indicator.lw {SHAPES} --known-rate 0.7 --by whitened --false-accepts 0.3 --out b.lw",
        folder("b.lw"),
        f"calibrate folders/softmax.lw {SHAPES} --split test --by cosine --out c.lw",
        folder("c.lw"),
        f"calibrate folders/clarel.lw {WORDS} --split test --out d.lw",
        folder("d.lw", WORDS),
        "calibrate folders/several.lw data/several.npz --out e.lw",
        folder("e.lw", "data/several.npz"),
        "calibrate folders/ridge.lw data/features/features.csv --split test --out f.lw",
        folder("f.lw", "data/features/features.csv"),
        "calibrate folders/several.lw data/several.npz --by whitened --out g.lw",
        f"calibrate folders/indicator.lw {SHAPES} --split tests --out h.lw",
    ),
    "name": (
        "name folders/zero_label.lw --json",
        f"name folders/zero_label.lw {SHAPES} --report sheets --json",
        names("sheets"),
        "name folders/zero_label.lw --answer '1=blue disc' --answer '0=red square' --out a.lw --json",
        folder("a.lw"),
        "name folders/named.lw --answer '2=green disc'",
        "name folders/transport.lw --json",
        f"name folders/zero_label.lw {SHAPES} --report page --overwrite",
        names("page"),
        "name folders/indicator.lw",
    ),
    "export": (
        "export folders/taught.lw --out a.onnx --json",
        network("a.onnx"),
    ),
    "pretrain": (
        f"pretrain {SHAPES} --kind simclr --set encoder.width=2 --set epochs=2 --probe --json --out a.safetensors",
        tensors("a.safetensors"),
        "pretrain data/gallery --size 8 --kind moco --set encoder.width=2 --set epochs=2 --json --out b.safetensors",
        tensors("b.safetensors"),
        f"pretrain {SHAPES} --kind patches --set width=40 --json --out c.safetensors",
        tensors("c.safetensors"),
    ),
    "settings": tuple(f"settings {name}" for name in (*METHODS, "simclr", "patches")),
    "serve": (
        "serve folders/served.lw --bake a.lw",
        folder("a.lw"),
        "serve folders/izf.lw",
        "serve folders/indicator.lw --port 99999",
    ),
    "data list": ("data list --data-root . --json", "data list --data-root ."),
    "data where": ("data where cifar10 --data-root .", "data where cub --data-root .", "data where cifar11 --data-root ."),
    "data check": (
        *(f"data check {source} --json" for source in (SHAPES, "data/several.npz", "data/grades/grades.npz", "data/features/features.csv")),
        f"data check {WORDS} --size 8 --json",
        *(
            f"data check data/other/{source} --json"
            for source in ("table.csv", "table.parquet", "several.csv", "encoded.npz", "packed-features.npz", "rows.npy", "sounds")
        ),
        f"data check {WORDS} --size 8 --out sheet.png",
        picture("sheet.png"),
        "data check data/damaged",
        "data check data/nothing",
        "data check data/other/foreign-features.npz",
    ),
    "data split": (
        "data split data/other/table.csv --out a.csv",
        "data split data/other/table.csv --kind grouped --seed 4 --out b.csv",
        text("b.csv"),
        "data split data/other/domains.csv --kind domain --held-out night --out c.csv",
        text("c.csv"),
        "data split data/described --kind zero-shot --out d.csv",
        text("d.csv"),
        "data split data/gallery --out e.csv --seed 1",
        text("e.csv"),
        "data check data/other/domains.csv --splits c.csv --json",
        "data split data/other/table.csv --kind sideways --out f.csv",
    ),
    "data encode": (
        f"data encode {SHAPES} --encoder folders/lenet.lw --out a.npz",
        arrays("a.npz"),
        "data encode data/gallery --encoder folders/encoder.safetensors --out b.npz",
        arrays("b.npz"),
        "data check b.npz --json",
    ),
    "data zero-shot": (
        "data zero-shot data/described --attributes data/described/labels.csv --encoder folders/lenet.lw --out a",
        names("a"),
        matrices("a/res101.mat"),
        matrices("a/att_splits.mat"),
        "data check a --json",
    ),
    "fit": (
        "fit data/described --size 8 --encoder none --set encoder.width=2 --set encoder_epochs=1 --out a.lw --json",
        "fit data/gallery --size 8 --encoder none --set encoder.width=2 --set epochs=1 --out b.lw --json",
        "fit data/several.npz --encoder none --set encoder.width=2 --set epochs=1 --out c.lw --json",
        f"fit {SHAPES} --method indicators --out d.lw",
        f"fit {SHAPES} --set negative=1 --out d.lw",
        f"fit {SHAPES} --method clarel --out d.lw",
        "fit data/several.npz --method softmax --out d.lw",
    ),
    "help": tuple((f"options of {verb or 'labelwise'}", partial(outside.options_of, verb)) for verb in ("", *EVERY)),
    "reproduce": (
        "reproduce --list --data-root .",
        "reproduce",
        "reproduce owl/table1",
        *(f"reproduce {recipe} --quick --seeds 1 --data-root . --out results" for recipe in QUICK),
        "reproduce izf/czsl --quick --seeds 1 --data-root . --out results --method 'izf, NBC' --method eszsl",
        "reproduce izf/toy --quick --seeds 1 --data-root . --method 'flow without centres' --method 'conditional VAE'",
        "reproduce indicator/table8 --quick --table --markdown --data-root . --out results",
        names("results"),
    ),
}  # fmt: skip
