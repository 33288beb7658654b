"""What is installed: the right packages and files, light to import, able to run without the workstation's libraries."""

from __future__ import annotations

import ast
import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("toolkit", "export", "boards", "overlays", "hls")
AT_THE_ROOT = ("__init__.py", "__main__.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
GENERATED = shutil.ignore_patterns("__pycache__", "*.pyc", ".*", "build")

# Import name -> distribution, where they differ.
DISTRIBUTIONS = {"PIL": "pillow", "skimage": "scikit-image", "onnx_ir": "onnx-ir", "tomllib": "tomli"}

BLOCKER = """
import sys

class Blocker:
    names = {names!r}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{{name}} is not part of the base install", name=name)

sys.meta_path.insert(0, Blocker())
"""


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT.anchor)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def config() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def listed(config: configparser.ConfigParser, section: str, option: str) -> list[str]:
    return [line for line in config[section][option].splitlines() if line and not line.startswith("#")]


def requirements(config: configparser.ConfigParser, *extras: str) -> set[str]:
    lines = listed(config, "options", "install_requires")
    for extra in extras:
        lines += listed(config, "options.extras_require", extra)
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in lines}


def distribution(top: str) -> str:
    return DISTRIBUTIONS.get(top, top).lower().replace("_", "-")


def python_files(*folders: str) -> list[Path]:
    return [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]


def imported(file: Path) -> set[str]:
    """The top-level names that a file imports, anywhere in it, other than relatively."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module]
    return {name.partition(".")[0] for name in names}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built from a copy: building in place would leave its traces in the checkout."""
    source = tmp_path_factory.mktemp("fast-car tmp.x1")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, source / folder, ignore=GENERATED)
    for name in AT_THE_ROOT:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "tests", source / "tests", ignore=GENERATED)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    result = subprocess.run([*command, "-v", "-w", str(out), "."], cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Deprecat" not in result.stdout, result.stdout
    (built,) = out.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_wheel_installs_one_package_and_no_tests(wheel: set[str]) -> None:
    assert {name.partition("/")[0].partition("-")[0] for name in wheel} == {"fastcar", "fastcar_edge"}
    assert not [name for name in wheel if name.startswith("fastcar/tests") or "conftest" in name]
    assert {name for name in wheel if name.count("/") == 1 and name.startswith("fastcar/")} == {
        "fastcar/__init__.py",
        "fastcar/__main__.py",
    }


def test_wheel_has_every_file_of_the_packages(wheel: set[str]) -> None:
    """Modules and data alike: a data file of a new kind must be named in [options.package_data]."""
    # make files are for checkouts
    ignored = re.compile(r"/(__pycache__|build|Makefile|\.[^/]*)(/|$)")
    files = {
        "fastcar/" + file.relative_to(ROOT).as_posix()
        for folder in SOURCES
        for file in (ROOT / folder).rglob("*")
        if file.is_file() and not ignored.search(file.relative_to(ROOT).as_posix())
    }
    assert sorted(files - wheel) == []


def test_wheel_has_the_license(wheel: set[str]) -> None:
    assert [name for name in wheel if name.endswith(".dist-info/licenses/LICENSE")]


def test_every_package_folder_is_listed(config: configparser.ConfigParser) -> None:
    folders = {file.parent.relative_to(ROOT) for file in python_files(*SOURCES)}
    packages = {".".join(("fastcar", *folder.parts)) for folder in folders} | {"fastcar"}
    assert set(listed(config, "options", "packages")) == packages


def test_every_package_folder_has_an_init() -> None:
    folders = {file.parent for file in python_files(*SOURCES)}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_folders_of_tests_are_not_packages_and_the_root_has_no_other_module() -> None:
    assert [str(file) for file in (ROOT / "tests").rglob("__init__.py")] == []
    assert sorted(file.name for file in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_every_import_is_a_declared_requirement(config: configparser.ConfigParser) -> None:
    """Of the base install, or of the extra that the file's folder belongs to."""
    extras = {
        "backends": ["emulate", "board"],
        "board": ["board"],
        "bundle": ["text"],
        "emulated": ["board"],
        "export": ["export", "train"],
        "evaluation": ["evaluate", "export", "ray"],
        "cli": ["emulate", "export", "train"],
    }
    undeclared = {}
    for file in python_files(*SOURCES):
        place = file.relative_to(ROOT)
        declared = requirements(config, *(extra for folder in place.parts[:2] for extra in extras.get(folder, [])))
        for top in imported(file) - sys.stdlib_module_names:
            if distribution(top) not in declared:
                undeclared[str(place)] = top
    assert undeclared == {}


def test_the_base_install_has_nothing_unused(config: configparser.ConfigParser) -> None:
    folders = [folder for folder in SOURCES if folder != "export"]
    used = {distribution(top) for file in python_files(*folders) for top in imported(file)}
    assert requirements(config) - used == set()


def test_import_is_light() -> None:
    heavy = ["numpy", "torch", "onnx", "onnx_ir", "onnxruntime", "brevitas", "click", "rich", "pydantic"]
    out = run(f"import sys, fastcar; dir(fastcar); print([name for name in {heavy!r} if name in sys.modules])")
    assert out.strip() == "[]"


def test_public_names() -> None:
    import fastcar

    assert set(fastcar.__all__) <= set(dir(fastcar))
    for name in fastcar.__all__:
        assert getattr(fastcar, name) is not None
    assert re.match(r"\d+\.\d+", fastcar.__version__)
    with pytest.raises(AttributeError, match="no attribute 'generat'"):
        _ = fastcar.generat  # type: ignore[attr-defined]


def test_base_install_imports() -> None:
    """The board side: every module but those of export, with the workstation's libraries out of reach."""
    workstation = {"torch", "brevitas", "onnx", "onnx_ir", "ml_dtypes", "onnxruntime", "gymnasium", "pytest"}
    workstation |= {"polars", "ray"}
    modules = [
        ".".join(("fastcar", *file.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for file in python_files("toolkit", "boards", "overlays", "hls")
    ]
    code = BLOCKER.format(names=workstation)
    code += f"import importlib\nfor module in {modules!r}:\n    importlib.import_module(module)\n"
    code += f"print(sorted({workstation!r} & set(sys.modules)))"
    assert run(code).strip() == "[]"


def test_module_and_console_script_are_the_same_command() -> None:
    script = Path(sys.executable).with_name("fastcar")
    if not script.exists():
        pytest.skip("installed without its console script")
    commands = [[str(script), "--help"], [sys.executable, "-m", "fastcar", "--help"]]
    outputs = [subprocess.run(command, capture_output=True, text=True, cwd=ROOT.anchor) for command in commands]
    assert [output.returncode for output in outputs] == [0, 0]
    assert outputs[0].stdout == outputs[1].stdout
    assert outputs[0].stdout.startswith("Usage: fastcar ")
