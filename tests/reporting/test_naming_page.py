"""The page on names without labels: what it shows, and that names stay words."""

import pytest

from labelwise.evaluation.naming import ClusterImages, NamedCluster
from labelwise.reporting.naming_page import naming_page
from labelwise.reporting.pages import TEMPLATES
from tests.encoders.samples import pixels
from tests.reporting.pages import Page, check_alone
from tests.reporting.test_page import HOSTILE


def cluster(number: int, label: str, *, answered: bool = False) -> NamedCluster:
    figures = {"certainty": 0.4, "size": 0.5, "share": 0.3, "agreement": 0.1, "together": 0.6}
    return NamedCluster(cluster=number, label=label, answered=answered, others=((label, 0.25),), **figures)


SHOWN = (
    ClusterImages(nearest=(0, 1), sample=(2,), count=3),
    ClusterImages(nearest=(3,), sample=(), count=1),
    ClusterImages(nearest=(), sample=(), count=0),
)


@pytest.mark.parametrize("bad", HOSTILE)
@pytest.mark.parametrize("features", [False, True])
def test_names_and_files_stay_words(bad: str, features: bool) -> None:
    images = {} if features else dict(enumerate(pixels(4)))
    files = [f"{bad}/{i}.png" for i in range(4)]
    clusters = [cluster(1, bad), cluster(0, "owl"), cluster(2, "none of it", answered=True)]
    page = Page(naming_page(f"Names in {bad}", clusters, SHOWN, images, files))
    check_alone(page)
    assert {"script", "i", "b"} & set(page.tags) == set()
    assert f"Names in {bad}" in page.titles
    assert [row[:3] for row in page.table("label")] == [
        [bad, "1", "a guess"],
        ["owl", "0", "a guess"],
        ["none of it", "2", "a person said so"],
    ]
    assert f"alternatives {bad} 25.0 %" in page.words
    assert page.words.count("It has none of these images.") == 1
    assert page.tags.count("img") == (0 if features else 4)
    assert page.tags.count("code") == (4 if features else 0)
    assert (f"{bad}/2.png" in page.words) == features


def test_no_template_says_that_a_value_is_html() -> None:
    pages = [file.read_text() for file in TEMPLATES.rglob("*.html")]
    assert len(pages) > 15
    for text in pages:
        assert "safe" not in text
        assert "autoescape" not in text
