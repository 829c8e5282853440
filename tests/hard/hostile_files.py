"""hostile files: models that are truncated, bombs, refer to other files or contradict themselves: refused, soon, and nothing else is opened."""

import pathlib
import sys
import tempfile
import time

import jax
import test_models
import test_models_mjcf
import test_models_sdf

import jaxmb as jm
from hard.row import cpu_time, none_of

FILES = {"model.urdf": test_models.HOSTILE, "model.xml": test_models_mjcf.HOSTILE, "model.sdf": test_models_sdf.HOSTILE}
SOON = 1.0  # s
CODE = (".py", ".pyc", ".so")


def attempt(folder, name, text, opened):
    """Whether a model is refused by ValueError, the time it took in s, and the files outside its folder that were opened."""
    path = folder / name
    path.write_text(text)
    opened.clear()
    start = time.perf_counter()
    try:
        jm.load(path)
        refused = False
    except ValueError:
        refused = True
    outside = [x for x in opened if not x.endswith(CODE) and folder not in pathlib.Path(x).resolve().parents]
    return refused, time.perf_counter() - start, outside


def figures(share, seed):
    """The row's figures; all of it, whatever the share."""
    jax.devices()  # JAX looks for packages and devices when it is first used
    opened, result, accepted, slow, outside, cases = [], [], 0, 0, 0, 0
    sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
    with cpu_time(result), tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        (folder / "outside").symlink_to("/etc")
        for file, hostile in FILES.items():
            attempt(folder, file, "", opened)  # what it needs is imported
            for what, (text, _) in hostile.items():
                refused, seconds, elsewhere = attempt(folder, file, text, opened)
                if not refused or seconds > SOON or elsewhere:
                    print(
                        f"hostile_files {file}, {what}: refused {refused}, {seconds:.2f} s, opened {elsewhere}",
                        flush=True,
                    )
                accepted, slow = accepted + (not refused), slow + (seconds > SOON)
                outside, cases = outside + bool(elsewhere), cases + 1
        result += [
            none_of("hostile files", "models in URDF, MJCF and SDF that are not refused", accepted, cases),
            none_of("hostile files", f"refused after more than {SOON:g} s", slow, cases),
            none_of("hostile files", "files outside the model's folder that Python opens", outside, cases),
        ]
    return result
