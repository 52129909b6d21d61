"""Progress: only in a reader's folder, only by a reader, and no broken file stops it."""

import subprocess
import sys

from book.exercises import ALL, check
from book.exercises.core import Exercise

DEMO = Exercise(id="99.value", title="Bytes", kind="predict", reference=131_072)


def test_progress_lives_in_a_readers_folder_only(tmp_path, monkeypatch, capsys):
    module = sys.modules["book.exercises.progress"]
    monkeypatch.setattr(module, "_session", set())
    work, other = tmp_path / "work", tmp_path / "notebooks"
    work.mkdir(), other.mkdir()
    exercise_id = next(iter(ALL))
    module.record(exercise_id, other)
    assert list(other.iterdir()) == []
    module.record(exercise_id, work)
    assert [p.name for p in work.iterdir()] == [module.FILE]
    assert module.load(work) == {exercise_id}
    for broken in ("", "{", "[]", '{"done": 3}', '{"done": [1, {}]}', "\x00\xff"):
        (work / module.FILE).write_text(broken, encoding="utf-8")
        module._session.clear()
        module.progress(exercise_id[:2], work)
        assert (
            f"0 of {len([k for k in ALL if k[:2] == exercise_id[:2]])} exercises done"
            in capsys.readouterr().out
        )
        module.record(exercise_id, work)
        assert module.load(work) == {exercise_id}
    module.progress(folder=work)
    assert f"1 of {len(ALL)} exercises done" in capsys.readouterr().out


def test_only_a_reader_makes_progress(tmp_path, monkeypatch, capsys):
    module = sys.modules["book.exercises.progress"]
    monkeypatch.setattr(module, "_session", set())
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def bytes_solution():
        return 131_072

    for answer in (bytes_solution, None, 3):
        check(DEMO, answer)
    assert not list(work.iterdir())
    check(DEMO, 131_072)
    assert module.load() == {"99.value"}
    work.chmod(0o500)
    check(DEMO, 131_072)  # a folder that cannot be written is no error
    work.chmod(0o700)


def test_listing_the_exercises_leaves_torch_unloaded():
    """Chapters 02 and 05 do their arithmetic without torch; their last cell lists exercises."""
    code = (
        "import sys; from book.exercises import ALL, check, progress; progress(); check('01.scale', 'b');"
        "assert ALL and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
