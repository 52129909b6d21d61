"""The checker in a real kernel, where IPython stands between: loops, exit(), display and print of a reader's code."""

import os

import nbformat
from nbclient import NotebookClient

from book.publish.execute import ENVIRONMENT

CELLS = {
    "from book.exercises import check, guard\nimport time\nguard.LIMIT = 5": "",
    "def mine(x, weight, eps):\n    return x": "",
    'check("01.rms_norm", mine)': "01.rms_norm: not yet",
    "guard.LIMIT = 0.3": "",
    """def mine(x, weight, eps):
    while True:
        try:
            time.sleep(0.01)
        except:
            pass
check("01.rms_norm", mine)""": "01.rms_norm: stopped after 0.3 s: is there a loop that never ends?\n",
    """def mine(x, weight, eps):
    exit()
check("01.rms_norm", mine)""": "01.rms_norm: raised SystemExit, in line 2 of mine: `exit()`",
    """def mine(x, weight, eps):
    display("a display"), print("a print")
    return weight
check("01.rms_norm", mine)""": "01.rms_norm: not yet",
    """def norm_solution(x, weight, eps):
    from lib import rms_norm
    return rms_norm(x, weight, eps)
check("01.rms_norm", norm_solution)""": "01.rms_norm solution: correct (6 cases)\n",
    "def right(x, weight, eps):\n    return norm_solution(x, weight, eps)": "",
    "from book.exercises import mine as own\nown('01.rms_norm') is right": "DISPLAYED",
    'check("01.rms_norm", right)': "01.rms_norm: correct (6 cases)\n",
    "own('01.rms_norm') is right or 1 / 0": "DISPLAYED",
    "def right(x, weight, eps)\n    return x": "ERROR",
    'check("01.rms_norm", right) ': "01.rms_norm: not judged. The cell that makes `right` stopped with a SyntaxError",
    "def right(x, weight, eps):\n    return x": "",
    'check("01.rms_norm", right)  ': "01.rms_norm: not yet",
    'display("alive")': None,
}


def test_in_a_kernel(tmp_path):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    for cell, expected in zip(nb.cells, CELLS.values(), strict=True):
        cell.metadata["tags"] = ["raises-exception"] if expected == "ERROR" else []
    client = NotebookClient(
        nb, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env={**os.environ, **ENVIRONMENT})
    for cell, expected in zip(nb.cells, CELLS.values(), strict=True):
        if expected is None:
            assert cell.outputs[0].data["text/plain"] == "'alive'"
            continue
        if expected == "ERROR":
            assert cell.outputs[0].ename == "SyntaxError"
            continue
        if expected == "DISPLAYED":
            assert cell.outputs[0].data["text/plain"] == str("1 / 0" in cell.source)
            continue
        text = "".join(output.get("text", "DISPLAYED") for output in cell.outputs)
        assert text.startswith(expected) and bool(text) == bool(expected), text
        assert "DISPLAYED" not in text and "a print" not in text
    assert not list(tmp_path.iterdir())
