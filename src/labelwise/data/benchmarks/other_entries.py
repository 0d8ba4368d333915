"""The benchmarks with domains, new classes at test time or ordered labels, and those of features and audio."""

from dataclasses import replace

from labelwise.data.benchmarks.entry import Entry, Remote

_XLSA = Remote(url="http://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip", file="xlsa17.zip", megabytes=879)
_XIAN = "Xian, Lampert, Schiele and Akata, Zero-Shot Learning: A Comprehensive Evaluation, TPAMI 2018"

PACS = Entry(
    name="pacs",
    title="PACS",
    classes=7,
    train=None,
    test=None,
    side=64,
    licence="none stated; for research",
    citation="Li, Yang, Song and Hospedales, Deeper, Broader and Artier Domain Generalization, ICCV 2017",
    homepage="https://sketchx.eecs.qmul.ac.uk/",
    files=("photo/", "art_painting/", "cartoon/", "sketch/", "with a folder for each class in each"),
    get="Follow the link to the PACS pictures (about 190 MB) on the official page.",
    packs=("pacs_64.npz",),
    folder="pacs",
    protocols=("standard", "photo", "art_painting", "cartoon", "sketch"),
    notes="9,991 photographs, paintings, cartoons and sketches; the domain of each is given. The protocol named after a "
    "domain tests on it and trains on the other three; standard divides all four (70/10/20).",
    papers=("prototype",),
)

TINY = Entry(
    name="tinyimagenet",
    title="TinyImageNet",
    classes=200,
    train=100_000,
    test=10_000,
    side=64,
    licence="ImageNet terms: non-commercial research",
    citation="Le and Yang, Tiny ImageNet Visual Recognition Challenge, 2015",
    homepage="http://cs231n.stanford.edu/",
    files=(
        "tiny-imagenet-200/wnids.txt",
        "tiny-imagenet-200/words.txt",
        "tiny-imagenet-200/train/",
        "tiny-imagenet-200/val/val_annotations.txt",
    ),
    remotes=(
        Remote(
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            file="tiny-imagenet-200.zip",
            megabytes=248.1,
            md5="90528d7ca1a48142e341f4ef8d21d0de",
        ),
    ),
    packs=("tinyimagenet_val_64.npz",),
    folder="tinyimagenet",
    notes="Photographs of 64x64; an outlier set in the papers. The official val split is test here (the official test "
    "pictures have no labels). The pack has test only.",
    papers=("indicator",),
)

LSUN = Entry(
    name="lsun",
    title="LSUN scenes (outlier set)",
    classes=10,
    train=None,
    test=10_000,
    side=32,
    licence="none stated; for research",
    citation="Yu, Seff, Zhang, Song, Funkhouser and Xiao, LSUN, arXiv:1506.03365, 2015",
    homepage="https://github.com/fyu/lsun",
    files=("any pictures, in folders or not",),
    get="Take the test pictures (a folder of 10,000) with the download script of the official page.",
    folder="lsun",
    notes="Photographs of rooms and places without labels (target -1), all in test.",
    papers=("indicator",),
)

MINI = Entry(
    name="miniimagenet",
    title="miniImageNet",
    classes=100,
    train=38_400,
    test=12_000,
    side=84,
    licence="ImageNet terms: non-commercial research",
    citation="Vinyals, Blundell, Lillicrap, Kavukcuoglu and Wierstra, Matching Networks, NeurIPS 2016",
    homepage="https://github.com/twitter-research/meta-learning-lstm/tree/master/data/miniImagenet",
    files=("train.csv", "val.csv", "test.csv", "images/"),
    get="Take the three CSV files from the official page and the 60,000 pictures from ImageNet (image-net.org, after "
    "registering); a mirror of the pictures is often called mini-imagenet.",
    folder="miniimagenet",
    notes="Photographs of 84x84: 64 classes in train, 16 in val (9,600 pictures), 20 others in test.",
    papers=("prototype",),
)

UTKFACE = Entry(
    name="utkface",
    title="UTKFace (ages)",
    classes=10,
    train=None,
    test=None,
    side=64,
    licence="non-commercial research",
    citation="Zhang, Song and Qi, Age Progression/Regression by Conditional Adversarial Autoencoder, CVPR 2017",
    homepage="https://susanqq.github.io/UTKFace/",
    files=("UTKFace/ with files such as 25_0_1_20170116174525125.jpg.chip.jpg",),
    get="Follow the link to the aligned and cropped faces (UTKFace.tar.gz, 107 MB) on the official page.",
    folder="utkface",
    protocols=("standard", "years"),
    notes="Aligned faces, about 23,700; ordered labels: decades of age, or each year with the protocol years. No "
    "official split: 70/10/20. Not in the papers; needs no registration, unlike Adience.",
)

ADIENCE = Entry(
    name="adience",
    title="Adience (ages)",
    classes=8,
    train=None,
    test=None,
    side=64,
    licence="research, after registering",
    citation="Eidinger, Enbar and Hassner, Age and Gender Estimation of Unfiltered Faces, TIFS 2014",
    homepage="https://talhassner.github.io/home/projects/Adience/Adience-data.html",
    files=("fold_0_data.txt ... fold_4_data.txt", "aligned/ (or faces/)"),
    get="Register on the official page; take aligned.tar.gz and the five files fold_?_data.txt, and unpack the archive.",
    folder="adience",
    protocols=("fold0", "fold1", "fold2", "fold3", "fold4"),
    notes="Faces from phones in 8 ordered age groups; the group of a picture is the person. The protocol names the fold to "
    "test on; the other four are train. Faces outside the 8 groups are left out.",
    papers=("zero_label",),
)


def _features(name: str, title: str, counts: tuple[int, int, int]) -> Entry:
    """Return the entry of one xlsa17 set; ``counts`` are labels, training rows and test rows (seen and unseen)."""
    where = f"xlsa17/data/{name.upper()}/"
    return Entry(
        name=name,
        title=title,
        what="features",
        classes=counts[0],
        train=counts[1],
        test=counts[2],
        side=0,
        licence="features for research; the pictures have terms of their own",
        citation=_XIAN,
        homepage="https://www.mpi-inf.mpg.de/zsl-benchmark",
        files=(where + "res101.mat", where + "att_splits.mat"),
        remotes=(_XLSA,),
        folder="xlsa17",
        notes="ResNet-101 features and an attribute vector for each label; proposed splits: test holds seen and unseen "
        "labels.",
        papers=("izf",),
    )


CUB = replace(
    CUB,
    FLO,
    VOXCELEB,
    AUDIOMNIST,
)
