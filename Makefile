# Each target calls a Python module; README.md gives the same commands for a machine without make.
# CH=05 picks one chapter, RESET=05 brings a fresh copy of one (yours stays beside it), LAB_ARGS=--no-browser goes to JupyterLab, PYTHON=python3.12 chooses what makes the environment.
PYTHON ?= python3
CH ?=
LAB_ARGS ?=
WORDS ?=
BENCH_ARGS ?=
RESET ?=
PY := .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup model lab test test-browser test-everywhere notebooks corpus experiments bench-mla bench-decode bench-sliders bench-class site slides \
	student solutions hub gpu

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | while IFS="$$(printf '\t')" read -r t d; do \
		printf 'make %-14s %s\n' "$$t" "$$d"; done

setup: ## make .venv and install the book under requirements.lock (needs Python 3.11 to 3.13)
	@$(PYTHON) src/book/setup.py

model: setup ## fetch SmolLM2-135M-Instruct (93 MB), check its sha256, keep it in models/
	@$(PY) -m book.fetch_model

lab: model ## read the book: copy it to work/, open JupyterLab there [RESET=05] [LAB_ARGS=--no-browser]
	@$(PY) -m book.lab $(if $(RESET),--reset $(RESET)) $(LAB_ARGS)

test: model ## run the whole test suite, every notebook included [CH=05]
	@$(PY) -m book.run_tests $(CH)

test-browser: model ## run the tests that need Chromium: JupyterLab, sliders, site, slides
	@$(PY) -m book.run_tests --browser

test-everywhere: model ## numeric tests under other CPU arithmetic, threads and orders (40 min) [WORDS=native]
	@$(PY) -m book.everywhere $(WORDS)

notebooks: model ## execute notebooks/*.py into the committed .ipynb files [CH=05]
	@$(PY) -m book.publish.execute $(CH)

corpus: model ## write the training text again with the real model (an hour of one core; resumes) and compare
	@$(PY) -m book.corpus

experiments: setup ## train what chapters 06, 07 and 09 plot (2 to 3 hours of one core; resumes) into notebooks/results
	@$(PY) -m book.experiments

bench-mla: setup ## time MLA's decode paths at DeepSeek-V3's size into tests/bench/results/mla.json
	@$(PY) tests/bench/mla.py

bench-decode: model ## time decoding beside a plain read, transformers and llama.cpp [BENCH_ARGS=--quick]
	@$(PY) tests/bench/decode.py $(BENCH_ARGS)

bench-sliders: model ## time the sliders in a real browser
	@$(PY) tests/bench/sliders.py

bench-class: model student ## load a JupyterHub with simulated students
	@$(PY) -m book.classroom.load

site: model ## build the static book into build/site
	@$(PY) -m book.publish.site

slides: model ## build one reveal.js deck a chapter into build/slides [CH=05] [FROM=work/: your own copies] [PDF=1]
	@$(PY) -m book.publish.slides $(CH) $(if $(FROM),--from $(FROM)) $(if $(PDF),--pdf)

student: setup ## write copies without solutions to build/student
	@$(PY) -m book.publish.student

solutions: setup ## write copies with solutions to build/solutions
	@$(PY) -m book.publish.student --solutions

hub: model student ## try a class out: JupyterHub on loopback
	@$(PY) -m book.classroom.hub

gpu: model ## run the library and its kernels on CUDA (or small on the CPU) against the fp64 oracle
	@$(PY) -m book.gpu_check
