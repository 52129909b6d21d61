"""Runs a chapter's cells without a kernel, in a process forked from one that has torch and matplotlib loaded: 3 s saved a run.

The code under test is imported after the fork, from the `src` that is asked for. Outputs are compared as nbval compares them;
pictures are not drawn (nbval does not look at them, and draws them itself when it runs the chapter).
"""

import contextlib
import io
import multiprocessing
import os
import sys
from pathlib import Path

from notebook_text import comparable

TIMEOUT = 300  # seconds for all cells of a chapter
LOADED = ["IPython", "ipywidgets", "matplotlib.pyplot", "numpy", "pytest", "torch", "torch.nn.functional"]
LOADED += ["matplotlib.backends.backend_svg", "safetensors.torch", "tokenizers"]
context = multiprocessing.get_context("forkserver")  # one server a pytest process, started at the first run
context.set_forkserver_preload(LOADED)


def shell_in(outputs):
    """An IPython shell that appends what a cell shows to `outputs`, as a kernel would send it."""
    import matplotlib
    from IPython.core.displayhook import CapturingDisplayHook
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from matplotlib_inline.config import InlineBackend

    shell = InteractiveShell.instance()
    shell.display_pub = CapturingDisplayPublisher()
    shell.display_pub.outputs = outputs
    shell.display_trap.hook = CapturingDisplayHook(shell, outputs)
    shell.showtraceback = shell.showsyntaxerror = lambda *args, **kwargs: (
        None
    )  # errors are read from the result
    shell.history_manager.enabled = False
    InlineBackend.instance(parent=shell).figure_formats = set()
    matplotlib.use("module://matplotlib_inline.backend_inline")
    return shell


def run_cell(shell, source, outputs):
    """One cell's outputs in the notebook format."""
    outputs.clear()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        result = shell.run_cell(source, store_history=True)
    made = [{"output_type": "display_data", "data": o["data"]} for o in outputs if o["data"]]
    for name, stream in (("stdout", out), ("stderr", err)):
        if stream.getvalue():
            made.append({"output_type": "stream", "name": name, "text": stream.getvalue()})
    error = result.error_before_exec or result.error_in_exec
    if error is not None:
        made.append({"output_type": "error", "ename": type(error).__name__, "evalue": str(error)})
    return made


def child(answer, src, folder, cells, stop, environment):
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [src, ""]
    import lib

    if not Path(lib.__file__).is_relative_to(src):
        raise ImportError(f"lib came from {lib.__file__}, expected it from {src}")
    outputs = []
    shell = shell_in(outputs)
    for number, (source, stored) in enumerate(cells):
        made = comparable(run_cell(shell, source, outputs))
        differs = stored is not None and made != stored
        answer.send((number, made, differs))
        if differs and stop:
            break
    answer.send(None)


def run(cells, src, folder, stop=False, **environment):
    """[(number, outputs, whether they differ)] of cells, a list of (source, stored outputs or None) as `comparable` gives them.

    src: the folder that lib and book are imported from; folder: where the cells run; stop: at the first difference.
    """
    environment = {"OMP_NUM_THREADS": "1", "BOOK_DEVICE": "cpu", **environment}
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(send, str(src), str(folder), cells, stop, environment))
    process.start()
    send.close()
    made = []
    try:
        while receive.poll(TIMEOUT):
            answer = receive.recv()
            if answer is None:
                return made
            made.append(answer)
        raise TimeoutError(f"cell {len(made)} took more than {TIMEOUT} s")
    except EOFError:
        raise RuntimeError(f"the process ended in cell {len(made)}") from None
    finally:
        process.kill()
        process.join()
