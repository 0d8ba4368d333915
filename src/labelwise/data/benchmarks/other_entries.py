"""The benchmarks with domains, new classes at test time or ordered labels, and those of features and audio."""

from dataclasses import replace

from labelwise.data.benchmarks.described import CAPTIONS_FILE, CONCEPT_FILES
from labelwise.data.benchmarks.entry import Entry, Remote

_XLSA = Remote(url="http://datasets.d2.mpi-inf.mpg.de/xian/xlsa17.zip", file="xlsa17.zip", megabytes=879)
_XLSA_PAGE = (
    "https://www.mpi-inf.mpg.de/departments/computer-vision-and-machine-learning/research/zero-shot-learning/"
    "zero-shot-learning-the-good-the-bad-and-the-ugly"
)
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
    homepage="https://domaingeneralization.github.io/",
    files=("photo/", "art_painting/", "cartoon/", "sketch/", "with a folder for each class in each"),
    get="Follow the link to the data on the official page.",
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
    get="Follow the link to the aligned and cropped faces (UTKFace.tar.gz) on the official page.",
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
        homepage=_XLSA_PAGE,
        files=(where + "res101.mat", where + "att_splits.mat"),
        remotes=(_XLSA,),
        folder="xlsa17",
        notes="ResNet-101 features and an attribute vector for each label; proposed splits: test holds seen and unseen "
        "labels.",
        papers=("izf",),
    )


CUB = replace(
    _features("cub", "CUB features", (200, 7_057, 1_764 + 2_967)),
    packs=("cub_res50.npz", "gzsl_splits/CUB/att_splits.mat"),
    protocols=("standard", "sentences", "captions", "captions_paper", "captions_control", "labo"),
    notes="ResNet features and a vector for each label: attributes, or Reed's sentence vectors (sent_splits.mat) with the "
    "protocol sentences. Proposed splits: test holds seen and unseen labels. captions: Reed's ten sentences per image of 55 "
    f"classes ({CAPTIONS_FILE}) describe labels; those of tested images do not. captions_paper: they do, and all images are "
    "tested. captions_control: they do, on the test images of captions. labo: machine-written sentences per class "
    f"({CONCEPT_FILES['cub']}; Yang et al., Language in a Bottle, CVPR 2023).",
    papers=("izf", "clarel"),
)

FLO = replace(
    _features("flo", "Flowers-102 features", (102, 5_631, 1_403 + 1_155)),
    remotes=(),
    get="It is not part of xlsa17.zip; take FLO/res101.mat and FLO/att_splits.mat from the data of Xian et al., Feature "
    "Generating Networks for Zero-Shot Learning (CVPR 2018).",
    packs=("flo_res50.npz", "gzsl_splits/FLO/att_splits.mat"),
    protocols=("standard", "labo"),
    notes="ResNet features and Reed's sentence vector for each label; test holds seen and unseen labels. labo: "
    f"machine-written sentences per class ({CONCEPT_FILES['flo']}; Yang et al., Language in a Bottle, CVPR 2023).",
    papers=("clarel",),
)

VOXCELEB = Entry(
    name="voxceleb1",
    title="VoxCeleb1",
    what="audio",
    classes=1_251,
    train=148_642,
    test=4_874,
    side=16_000,
    licence="CC BY 4.0 (annotations); audio for research, after registering",
    citation="Nagrani, Chung and Zisserman, VoxCeleb: a Large-Scale Speaker Identification Dataset, Interspeech 2017",
    homepage="https://www.robots.ox.ac.uk/~vgg/data/voxceleb/vox1.html",
    files=("wav/id10001/<video>/00001.wav",),
    get="Register on the official page; unpack vox1_dev_wav.zip (about 30 GB) and vox1_test_wav.zip (about 1 GB).",
    folder="voxceleb1",
    notes="Speech, the middle 2 seconds of each clip; labels are speakers, groups are videos. Test has the 40 speakers id10270 to id10309, train the other 1,211. The paper "
    "trains on VoxCeleb2.",
    papers=("prototype",),
)

AUDIOMNIST = Entry(
    name="audiomnist",
    title="AudioMNIST",
    what="audio",
    classes=60,
    train=20_000,
    test=10_000,
    side=8_000,
    licence="MIT",
    citation="Becker, Ackermann, Lapuschkin, Müller and Samek, Interpreting Audio Classifiers, arXiv:1807.03418, 2018",
    homepage="https://github.com/soerenab/AudioMNIST",
    files=("data/01/0_01_0.wav",),
    get="git clone https://github.com/soerenab/AudioMNIST",
    packs=("audiomnist_8k_mulaw.npz",),
    folder="audiomnist",
    protocols=("standard", "digits"),
    notes="Spoken digits, 1 second each. standard: labels are speakers, 1-40 train and 41-60 test. digits: labels are the digits, the "
    "same split. The pack has 4 of 50 repetitions, at 8 kHz. Not in the papers; stands in for VoxCeleb.",
)

OTHER_ENTRIES = (
    PACS,
    TINY,
    LSUN,
    MINI,
    UTKFACE,
    ADIENCE,
    _features("awa1", "Animals with Attributes 1", (50, 19_832, 4_958 + 5_685)),
    _features("awa2", "Animals with Attributes 2", (50, 23_527, 5_882 + 7_913)),
    _features("sun", "SUN Attributes", (717, 10_320, 2_580 + 1_440)),
    _features("apy", "Attribute Pascal and Yahoo", (32, 5_932, 1_483 + 7_924)),
    CUB,
    FLO,
    VOXCELEB,
    AUDIOMNIST,
)
