# Each target works from a fresh checkout. The environment (.venv) is made once, and again only when what it is made
# from has changed: the text of setup.cfg, pyproject.toml or constraints.txt, the Python in use, the folder's place.
# Paths are relative throughout, so the checkout may lie in a folder of any name.

# A Python to use instead of the first suitable one on the path: make test PYTHON=/opt/python3.12/bin/python3
PYTHON ?=
# More arguments for `pip install`, such as an index that offers the CPU build of torch. On Linux the usual index may
# bring the CUDA build, several GB larger, which this project has no use for.
PIP_ARGS ?=
# More arguments for pytest: make test PYTEST_ARGS="-m 'not slow'"
PYTEST_ARGS ?=

EXTRAS := export,emulate,board,train,evaluate,dev
# numpy 1.26 and torch have wheels for all of these; what is newer would compile for an hour or fail.
SUPPORTED := Python 3.10 to 3.12

SHELL := /bin/sh
.SHELLFLAGS := -euc
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help environment test bench hard demo lint clean

unexport PYTHONHOME PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHON

help:
	@echo "make demo    the whole job on the model that comes with the project, into demo/"
	echo "make test    the tests"
	echo "make bench   the benchmarks"
	echo "make hard    the tests that take longer: whole clips through the overlay's C++, more mutants"
	echo "make lint    ruff"
	echo "make clean   remove the environment and what was built (not demo/)"
	echo "Each sets up .venv first if need be. Variables: PYTHON, PIP_ARGS, PYTEST_ARGS (see the Makefile)."

test: environment
	@echo "fastcar: tests"
	.venv/bin/pytest tests --ignore=tests/bench -m "not hard" -n auto --dist loadscope $(PYTEST_ARGS)

bench: environment
	@echo "fastcar: benchmarks"
	.venv/bin/pytest tests/bench $(PYTEST_ARGS)

hard: environment
	@echo "fastcar: the long tests"
	.venv/bin/pytest tests --ignore=tests/bench -m hard $(PYTEST_ARGS)

demo: environment
	@.venv/bin/fastcar demo --out demo

lint: environment
	@.venv/bin/ruff check .

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache

environment:
	@home() { pwd; .venv/bin/python -V; }
	inputs() { echo '$(EXTRAS)'; cat setup.cfg pyproject.toml constraints.txt; }
	recorded() { cat ".venv/$$1" 2>/dev/null || true; }
	say() { echo "fastcar: $$*"; }

	# A moved checkout or a replaced system Python leaves an environment that half works: start afresh.
	if [ -e .venv ]; then
	    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then rm -rf .venv
	    elif [ -f .venv/home ] && [ "$$(recorded home)" != "$$(home)" ]; then rm -rf .venv; fi
	fi

	if [ ! -e .venv ]; then
	    python= why=
	    set -- python3 python3.12 python3.11 python3.10
	    [ -z "$$PYTHON" ] || set -- "$$PYTHON"
	    for candidate; do
	        if ! version=$$("$$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null); then
	            [ -z "$$PYTHON" ] || why="; $$candidate does not run"
	            continue
	        fi
	        case $$version in
	            3.1[0-2]) ;;
	            *) why="$$why; $$candidate is Python $$version"; continue ;;
	        esac
	        if "$$candidate" -c 'import ensurepip, venv' 2>/dev/null; then python=$$candidate; break; fi
	        why="$$why; $$candidate ($$version) cannot make virtual environments (apt-get install python$$version-venv)"
	    done
	    if [ -z "$$python" ]; then
	        say "needs $(SUPPORTED) with venv$${why:-; found none}" >&2
	        say "on Debian or Ubuntu: apt-get install python3 python3-venv; or name one: make PYTHON=/path/to/python3.12" >&2
	        exit 1
	    fi
	    say "creating .venv with Python $$version"
	    "$$python" -m venv .venv
	fi
	home > .venv/home

	wanted=$$(inputs | cksum)
	if [ "$$(recorded installed)" != "$$wanted" ]; then
	    say "installing packages into .venv (once, a few minutes; log: .venv/install.log)"
	    start=$$(date +%s)
	    # -e with a folder of any name: "." is the project whatever the folder is called.
	    # Of hls4ml only the arithmetic headers are used, of lpips its linear heads: without what they would bring along.
	    { .venv/bin/python -m pip install -c constraints.txt -e '.[$(EXTRAS)]' $(PIP_ARGS) &&
	      .venv/bin/python -m pip install -c constraints.txt --no-deps hls4ml lpips $(PIP_ARGS); } > .venv/install.log 2>&1 &
	    pip=$$!
	    trap 'kill $$pip; exit 130' INT TERM
	    while [ -t 1 ] && kill -0 $$pip 2>/dev/null; do
	        printf '\r  %4d s  %.60s\033[K' $$(($$(date +%s) - start)) "$$(tail -n 1 .venv/install.log)"
	        sleep 1
	    done
	    [ ! -t 1 ] || printf '\r\033[K'
	    if ! wait $$pip; then
	        tail -n 15 .venv/install.log >&2
	        say "the installation failed (the whole log: .venv/install.log); the next run tries again" >&2
	        exit 1
	    fi
	    trap - INT TERM
	    echo "$$wanted" > .venv/installed
	    say "installed in $$(($$(date +%s) - start)) s"
	fi
