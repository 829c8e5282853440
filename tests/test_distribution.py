"""What is released says one version everywhere; the wheel works without the checkout, and the source distribution holds its tests."""

import email
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_one_version_is_said_everywhere():
    version = re.escape(PROJECT["version"])
    for name, line in (
        ("CITATION.cff", rf"^version: {version}$"),
        ("recipe/meta.yaml", rf'set version = "{version}"'),
        ("CHANGELOG.md", rf"\A# Changelog\n\n## {version} \((\d{{4}}-\d\d-\d\d|unreleased)\)$"),
    ):
        assert re.search(line, (ROOT / name).read_text(), re.MULTILINE), name


def test_the_recipe_asks_for_what_the_project_does():
    needed = {re.sub(r"\s", "", line) for line in PROJECT["dependencies"]}
    run = re.search(r"  run:\n((?:    - .*\n)+)", (ROOT / "recipe" / "meta.yaml").read_text())[1]
    asked = {re.sub(r"\s", "", line.strip().removeprefix("- ")) for line in run.splitlines()}
    assert asked - needed == {f"python{PROJECT['requires-python']}"} and needed <= asked


def test_addresses_in_the_overview_for_programs_are_there():
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / "llms.txt").read_text()):
        assert (ROOT / target).exists(), target


def test_the_description_of_an_index_needs_no_repository():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "README.md").read_text()
    shown = module.on_an_index(text)
    assert re.findall(r"\]\((?!https?:)", shown) == [] and "![" not in shown
    assert re.findall(r"```python\n.*?```", shown, re.DOTALL) == re.findall(r"```python\n.*?```", text, re.DOTALL)
    assert "* Getting started: systems" in shown and "[JAX](https://docs.jax.dev)" in shown


def done(*command, **options):
    found = subprocess.run([str(x) for x in command], capture_output=True, text=True, timeout=3000, **options)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    return found.stdout


def clean():
    """The environment without what leads to the checkout."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "XLA_FLAGS", "JAX_ENABLE_X64")}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel, which is built from the source distribution, and that."""
    folder = tmp_path_factory.mktemp("dist")
    done(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone(built):
    with zipfile.ZipFile(built[0]) as archive:
        names = archive.namelist()
        about = email.message_from_bytes(archive.read(next(name for name in names if name.endswith("METADATA"))))
    info = f"jaxmb-{PROJECT['version']}.dist-info/"
    assert all(name.startswith(("jaxmb/", info)) for name in names)
    package = {
        str(path.relative_to(ROOT)) for path in (ROOT / "jaxmb").rglob("*") if path.suffix in (".c", ".html", ".py")
    }
    pages = {f"jaxmb/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    others = {"jaxmb/py.typed", "jaxmb/llms.txt"}
    assert {name for name in names if name.startswith("jaxmb/")} == package | pages | others
    assert built[0].stat().st_size < 2e6
    assert about["Author"] == "The jaxmb developers" and about["License-Expression"] == PROJECT["license"]
    assert "](docs/" not in about.get_payload() and "## Quickstart" in about.get_payload()


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git tells which files there are")
def test_the_source_distribution_holds_what_its_tests_need_and_nothing_else(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    tracked = set(done("git", "-C", ROOT, "ls-files").split("\n")) - {""}
    held = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert held - tracked == {"PKG-INFO"}
    assert {name for name in tracked - held if not name.startswith(".")} == set()
    collected = done(
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-n",
        "0",
        "-m",
        "slow or not slow",
        cwd=folder,
        env=clean(),
    )
    assert int(re.search(r"(\d+) tests collected", collected)[1]) > 2000


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The Python of an environment that holds the wheel, and a folder with the code of the README."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    done(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built[0], env=clean())
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (folder / "code").mkdir()
    (folder / "code" / "readme.py").write_text("\n".join(blocks))
    (folder / "code" / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    return python, folder / "code"


@pytest.mark.slow
def test_the_wheel_runs_the_code_of_the_readme_without_the_checkout(installed):
    python, folder = installed
    shown = done(python, folder / "readme.py", cwd=folder, env=clean())
    assert "hand at" in shown and "d x(1 s) / d v0 =" in shown
    place = done(python, "-c", "import jaxmb; print(jaxmb.__version__, jaxmb.__file__)", cwd=folder, env=clean())
    assert place.startswith(PROJECT["version"]) and str(ROOT) not in place
    page = done(python, "-m", "jaxmb", "docs", "reactions", cwd=folder, env=clean())
    assert page.rstrip("\n") == (ROOT / "docs" / "reactions.md").read_text().rstrip("\n")


@pytest.mark.slow
def test_a_type_checker_has_nothing_to_say_about_the_code_of_the_readme(installed):
    python, folder = installed
    found = done(sys.executable, "-m", "basedpyright", "--pythonpath", python, cwd=folder, env=clean())
    assert "0 errors, 0 warnings" in found
