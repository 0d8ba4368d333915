"""The benchmarks of photographs with a label each."""

from dataclasses import replace

from labelwise.data.benchmarks.entry import Entry, Remote

_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_FLOWERS = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102/"
_PETS = "https://www.robots.ox.ac.uk/~vgg/data/pets/data/"

CIFAR10 = Entry(
    name="cifar10",
    title="CIFAR-10",
    classes=10,
    train=50_000,
    test=10_000,
    side=32,
    licence="none stated; cite the report",
    citation="Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    homepage=_CIFAR + "cifar.html",
    files=("cifar-10-batches-bin/data_batch_1.bin", "or cifar-10-batches-py/data_batch_1"),
    remotes=(
        Remote(
            url=_CIFAR + "cifar-10-binary.tar.gz",
            file="cifar-10-binary.tar.gz",
            megabytes=170.1,
            md5="c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    packs=("cifar10.npz",),
    folder="cifar10",
    notes="Photographs of 32x32. The python version (cifar-10-python.tar.gz, md5 c58f30108f718f92721af3b95e74349a) "
    "is read as well.",
    papers=("indicator", "prototype", "zero_label"),
)

CIFAR100 = Entry(
    name="cifar100",
    title="CIFAR-100",
    classes=100,
    train=50_000,
    test=10_000,
    side=32,
    licence="none stated; cite the report",
    citation=CIFAR10.citation,
    homepage=CIFAR10.homepage,
    files=("cifar-100-binary/train.bin", "or cifar-100-python/train"),
    remotes=(
        Remote(
            url=_CIFAR + "cifar-100-binary.tar.gz",
            file="cifar-100-binary.tar.gz",
            megabytes=168.5,
            md5="03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    packs=("cifar100.npz",),
    folder="cifar100",
    notes="Photographs of 32x32. The python version (cifar-100-python.tar.gz, md5 eb9058c3a382ffc7106e4002c42a8d85) "
    "is read as well.",
)

STL10 = Entry(
    name="stl10",
    title="STL-10",
    classes=10,
    train=5_000,
    test=8_000,
    side=96,
    licence="none stated; pictures from ImageNet, for research",
    citation="Coates, Lee and Ng, An Analysis of Single-Layer Networks in Unsupervised Feature Learning, AISTATS 2011",
    homepage="https://cs.stanford.edu/~acoates/stl10/",
    files=(
        "stl10_binary/train_X.bin",
        "stl10_binary/train_y.bin",
        "stl10_binary/test_X.bin",
        "stl10_binary/test_y.bin",
    ),
    remotes=(
        Remote(
            url="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            file="stl10_binary.tar.gz",
            megabytes=2640.4,
            md5="91f7769df0f17e558f3565bffb0c7dfb",
        ),
    ),
    folder="stl10",
    protocols=("standard", "unlabelled"),
    notes="Photographs of 96x96. The protocol unlabelled adds the 100,000 unlabelled pictures to train (target -1).",
    papers=("indicator", "zero_label"),
)

PETS = Entry(
    name="pets",
    title="Oxford-IIIT Pets",
    classes=37,
    train=3_680,
    test=3_669,
    side=64,
    licence="CC BY-SA 4.0",
    citation="Parkhi, Vedaldi, Zisserman and Jawahar, Cats and Dogs, CVPR 2012",
    homepage="https://www.robots.ox.ac.uk/~vgg/data/pets/",
    files=("images/", "annotations/trainval.txt", "annotations/test.txt"),
    remotes=(
        Remote(
            url=_PETS + "images.tar.gz",
            file="images.tar.gz",
            megabytes=791.9,
            md5="5c4f3ee8e5d25df40f4fd59a7f44e54c",
        ),
        Remote(
            url=_PETS + "annotations.tar.gz",
            file="annotations.tar.gz",
            megabytes=19.2,
            md5="95a8c909bbe2e81eed6a22bccdf3f68f",
        ),
    ),
    packs=("pets37_64.npz",),
    folder="pets",
    protocols=("standard", "species"),
    notes="Photographs; the paper uses 224x224. The protocol species has two labels, cat and dog.",
    papers=("indicator",),
)

CUB200 = Entry(
    name="cub200",
    title="Caltech-UCSD Birds-200-2011",
    classes=200,
    train=5_994,
    test=5_794,
    side=64,
    licence="non-commercial research",
    citation="Wah, Branson, Welinder, Perona and Belongie, The Caltech-UCSD Birds-200-2011 Dataset, CNS-TR-2011-001",
    homepage="https://www.vision.caltech.edu/datasets/cub_200_2011/",
    files=("CUB_200_2011/images.txt", "CUB_200_2011/train_test_split.txt", "CUB_200_2011/images/"),
    remotes=(
        Remote(
            url="https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
            file="CUB_200_2011.tgz",
            megabytes=1150.6,
            md5="97eceeb196236b17998738112f37df78",
        ),
    ),
    packs=("cub200_64.npz",),
    folder="cub200",
    protocols=("standard", "retrieval"),
    notes="Photographs; the papers use 224x224. The protocol retrieval trains on the first 100 classes and tests on "
    "the other 100.",
    papers=("indicator", "prototype"),
)

CARS196 = Entry(
    name="cars196",
    title="Stanford Cars",
    classes=196,
    train=8_144,
    test=8_041,
    side=64,
    licence="non-commercial research",
    citation="Krause, Stark, Deng and Fei-Fei, 3D Object Representations for Fine-Grained Categorization, 3dRR 2013",
    homepage="https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
    files=("cars_annos.mat", "car_ims/", "or devkit/, cars_train/, cars_test/, cars_test_annos_withlabels.mat"),
    get="The official address no longer serves the files; take car_ims.tgz (about 1,950 MB) and cars_annos.mat, or the "
    "devkit form, from a mirror you trust.",
    folder="cars196",
    protocols=("standard", "retrieval"),
    notes="Photographs; the paper uses 224x224. The protocol retrieval trains on the first 98 classes and tests on "
    "the other 98.",
    papers=("prototype",),
)

BMW10 = Entry(
    name="bmw10",
    title="BMW-10",
    classes=10,
    train=258,
    test=254,
    side=64,
    licence="non-commercial research",
    citation=CARS196.citation,
    homepage=CARS196.homepage,
    files=("bmw10_release/bmw10_annos.mat", "bmw10_release/bmw10_ims/"),
    get="The official address (ai.stanford.edu/~jkrause/car196/bmw10_release.tgz) may no longer serve the file; take "
    "bmw10_release.tgz from there or from a mirror you trust.",
    folder="bmw10",
    notes="Photographs; the paper uses 224x224.",
    papers=("indicator",),
)

FLOWERS102 = Entry(
    name="flowers102",
    title="Oxford Flowers-102",
    classes=102,
    train=1_020,
    test=6_149,
    side=64,
    licence="none stated; for research",
    citation="Nilsback and Zisserman, Automated Flower Classification over a Large Number of Classes, ICVGIP 2008",
    homepage=_FLOWERS,
    files=("jpg/", "setid.mat", "imagelabels.mat"),
    remotes=(
        Remote(
            url=_FLOWERS + "102flowers.tgz",
            file="102flowers.tgz",
            megabytes=344.9,
            md5="52808999861908f626f3c1f4e79d11fa",
        ),
        Remote(
            url=_FLOWERS + "imagelabels.mat",
            file="imagelabels.mat",
            megabytes=0.001,
            md5="e0620be6f572b9609742df49c70aed4d",
            unpack=False,
        ),
        Remote(
            url=_FLOWERS + "setid.mat",
            file="setid.mat",
            megabytes=0.015,
            md5="a5357ecc9cb78c4bef273ce3793fc85c",
            unpack=False,
        ),
    ),
    packs=("flowers102_64.npz",),
    folder="flowers102",
    notes="Photographs; 1,020 more are the official val split. Zero-shot papers use the features of flo.",
    papers=("clarel",),
)

PICTURE_ENTRIES = (
    CIFAR10,
    CIFAR100,
    replace(
        CIFAR100,
        name="cifar100-20",
        title="CIFAR-100 with its 20 superclasses",
        classes=20,
        papers=("zero_label",),
    ),
    STL10,
    PETS,
    CUB200,
    replace(
        CUB200,
        name="cub20",
        title="CUB-20, the first 20 classes of CUB-200-2011",
        classes=20,
        train=515,
        test=600,
        protocols=("standard",),
        notes="Photographs; the paper uses 224x224 and prints 515 train / 600 test. The official split of these classes "
        "is the other way round, 600 train / 515 test, and that is what is loaded.",
        papers=("indicator",),
    ),
    CARS196,
    replace(
        CARS196,
        name="cars-bmw",
        title="The 13 BMW classes of Stanford Cars",
        classes=13,
        train=529,
        test=522,
        side=128,
        packs=("bmw_from_cars_128.npz",),
        protocols=("standard",),
        notes="Photographs; a relative of BMW-10, not BMW-10 itself. No paper uses it.",
        papers=(),
    ),
    BMW10,
    FLOWERS102,
)
