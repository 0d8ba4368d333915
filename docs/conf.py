"""Settings of the documentation site: ``make docs`` builds it with Sphinx, the theme furo and MyST."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from notebooks import has_examples, write_notebook

project = "labelwise"
copyright = "the labelwise authors"
found = re.search(r'__version__ = "([^"]+)"', (Path(__file__).parents[1] / "src/labelwise/__init__.py").read_text())
release = version = found[1] if found else ""

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]
suppress_warnings = ["myst.header"]

autodoc_mock_imports = [] if find_spec("torch") else ["torch"]  # the site builds without the extra train
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_google_docstring = True
default_role = "code"

highlight_language = "none"
html_theme = "furo"
html_title = "labelwise"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_math_renderer = "mathml"


def draw_formula(writer: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers draw by themselves: the site loads nothing from elsewhere."""
    block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block=block)
    writer.body.append(f'<div class="math">{formula}</div>' if block else formula)
    raise nodes.SkipNode


def offer_notebook(app: Any, name: str, source: list[str]) -> None:
    """Write a page with examples as a notebook next to the site, and link to it below the title."""
    if not has_examples(source[0]):
        return
    write_notebook(Path(app.srcdir, f"{name}.md"), Path(app.outdir, "notebooks", f"{name}.ipynb"))
    address = "../" * name.count("/") + f"notebooks/{name}.ipynb"
    link = f'```{{raw}} html\n<p class="notebook"><a href="{address}" download>Download this page as a notebook</a></p>\n```\n'
    source[0] = re.sub(r"^(# .*\n)", lambda title: f"{title[1]}\n{link}", source[0], count=1, flags=re.MULTILINE)


def setup(app: Any) -> None:
    """Register the renderer of formulas, and the notebooks."""
    app.add_html_math_renderer("mathml", (draw_formula, None), (draw_formula, None))
    app.connect("source-read", offer_notebook)
