# Two commands from nothing: `make demo` and `make test`. Each makes .venv, installs and runs.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= passive

.PHONY: demo page test failed lint format docs bench lowest plain lock release soak clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 13) else "labelwise needs Python 3.11 to 3.13; set PYTHON=...")'
	$(PYTHON) -m venv .venv
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch .venv/ready

demo: .venv/ready
	$(BIN)/labelwise demo --out demo

# The page of the service in a browser, on the demo's classifier: ask, compare, teach. PORT=8001 for another port.
page: .venv/ready
	$(BIN)/python tools/page.py --port $(or $(PORT),8000)

# Modules are compiled once, not by each of the processes that the tests start.
test: .venv/ready
	@sh tools/browser.sh
	@sh tools/onnx_web.sh
	@sh tools/postgres.sh
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# Only the tests that failed last, one after another.
failed: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site, in site/index.html. Warnings are errors.
docs: .venv/ready
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going docs site

bench: .venv/ready
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python benchmarks/indicator_negatives.py
	$(BIN)/python benchmarks/augment.py

# The lowest versions that pyproject.toml names (Python 3.11 has wheels of all), but for torch, which is taken from .venv: the quick part of the tests.
QUICK := tests/server/test_routes.py tests/server/test_safety.py tests/cli/test_classify.py tests/cli/test_ask.py \
	tests/cli/test_refusals.py tests/images/sources tests/images/decode tests/reporting/test_svg.py tests/core/test_store.py tests/hostile/test_names.py \
	tests/tasks/test_gallery_index.py tests/core/test_export.py::test_features_are_taken_as_floats
lowest: .venv/ready
	$(BIN)/python -m venv --clear .venv-lowest
	$(BIN)/python -c 'import glob, sysconfig; print(sysconfig.get_path("purelib"), file=open(glob.glob(".venv-lowest/lib/*/site-packages")[0] + "/others.pth", "w"))'
	$(BIN)/python tools/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/python -m pip install --quiet --no-compile --requirement .venv-lowest/lowest.txt
	PYTHONPATH=src OMP_NUM_THREADS=1 .venv-lowest/bin/python -m pytest -n auto --dist worksteal $(QUICK)

# The source archive and the wheel that is built from it: complete, and installed as most people have it, without torch, on each Python that is here. The everyday commands work there.
plain: .venv/ready
	$(PYTHON) -m venv --clear .venv-plain
	.venv-plain/bin/python -m pip install --quiet --no-compile build
	.venv-plain/bin/python -m build --outdir .venv-plain/dist
	.venv-plain/bin/python tools/package.py .venv-plain/dist
	sh tools/pythons.sh .venv-plain/dist/*.whl

# Versions and hashes of what a service with all but torch installs, for every system and Python: requirements.lock.
lock: .venv/ready
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --upgrade \
		--extra serve --extra export --extra parquet --extra sklearn --extra heic --output-file requirements.lock

# What a release publishes, in dist/: archive, wheel, and their SBOM (CycloneDX) with the versions of requirements.lock.
release: plain
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable '.[release]'
	rm -rf dist && mkdir dist && cp .venv-plain/dist/* dist/
	$(PYTHON) -m venv --clear --without-pip .venv-plain/locked
	$(BIN)/python -m pip --python .venv-plain/locked install --quiet --no-compile --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip --python .venv-plain/locked install --quiet --no-compile --no-deps dist/*.whl
	$(BIN)/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --mc-type library \
		--output-file "$$(ls dist/*.whl | sed 's/-py3.*/.cdx.json/')" .venv-plain/locked
	$(BIN)/python -c 'import json, pathlib, sys, labelwise; file = pathlib.Path(sys.argv[1]); parts = json.loads(file.read_text()); \
		parts["metadata"]["component"]["version"] = labelwise.__version__; file.write_text(json.dumps(parts, indent=2) + "\n")' dist/*.cdx.json

# A service under load and faults, with a model of what it must know: 30 minutes, or HOURS=2.
soak: .venv/ready
	$(BIN)/python tools/soak.py --minutes $(if $(HOURS),$$(($(HOURS) * 60)),30)

clean:
	rm -rf .venv .venv-lowest .venv-plain demo dist site .pytest_cache .mypy_cache .ruff_cache
