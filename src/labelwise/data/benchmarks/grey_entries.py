"""The benchmarks of digits, clothes and characters: small grey pictures."""

from labelwise.data.benchmarks.entry import Entry, Remote

_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_OMNIGLOT = "https://github.com/brendenlake/omniglot/raw/master/python/"
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_MNIST_MD5 = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
_FASHION_MD5 = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)


def _idx(base: str, md5: tuple[str, ...], megabytes: tuple[float, ...]) -> tuple[Remote, ...]:
    return tuple(
        Remote(url=f"{base}{name}.gz", file=f"{name}.gz", megabytes=size, md5=check, unpack=False)
        for name, size, check in zip(_IDX, megabytes, md5, strict=True)
    )


MNIST = Entry(
    name="mnist",
    title="MNIST",
    classes=10,
    train=60_000,
    test=10_000,
    side=28,
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio and Haffner, Gradient-Based Learning Applied to Document Recognition, 1998",
    homepage="http://yann.lecun.com/exdb/mnist/",
    files=tuple(f"{name} (or .gz)" for name in _IDX),
    remotes=_idx(_MNIST, _MNIST_MD5, (9.9, 0.03, 1.6, 0.005)),
    packs=("mnist.npz",),
    folder="mnist",
    notes="Grey handwritten digits of 28x28.",
    papers=("prototype",),
)

FASHION = Entry(
    name="fashion-mnist",
    title="Fashion-MNIST",
    classes=10,
    train=60_000,
    test=10_000,
    side=28,
    licence="MIT",
    citation="Xiao, Rasul and Vollgraf, Fashion-MNIST: a Novel Image Dataset for Benchmarking, arXiv:1708.07747, 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    files=MNIST.files,
    remotes=_idx(_FASHION, _FASHION_MD5, (26.4, 0.03, 4.4, 0.005)),
    packs=("fashion_mnist_20k.npz",),
    folder="fashion-mnist",
    notes="Grey clothes of 28x28; an outlier set in the papers. The pack has 10,000 + 10,000 pictures and its split is "
    "not proven to be the official one.",
    papers=("indicator",),
)

OMNIGLOT = Entry(
    name="omniglot",
    title="Omniglot",
    classes=1_623,
    train=19_280,
    test=13_180,
    side=28,
    licence="MIT",
    citation="Lake, Salakhutdinov and Tenenbaum, Human-Level Concept Learning, Science 350, 2015",
    homepage="https://github.com/brendenlake/omniglot",
    files=("images_background/ and images_evaluation/", "or the same as .zip"),
    remotes=(
        Remote(
            url=_OMNIGLOT + "images_background.zip",
            file="images_background.zip",
            megabytes=9.5,
            md5="68d2efa1b9178cc56df9314c21c6e718",
            unpack=False,
        ),
        Remote(
            url=_OMNIGLOT + "images_evaluation.zip",
            file="images_evaluation.zip",
            megabytes=6.5,
            md5="6b91aef0f799c5bb55b94e3f2daec811",
            unpack=False,
        ),
    ),
    packs=("omniglot/images_background_small1.zip", "omniglot/images_background_small2.zip"),
    folder="omniglot",
    notes="Grey handwritten characters, 20 of each; the group of a picture is its alphabet. Test has other alphabets than "
    "train. From the two small zips: the 5 alphabets of small1 are train, the 3 that only small2 has are test.",
)

GREY_ENTRIES = (MNIST, FASHION, OMNIGLOT)
