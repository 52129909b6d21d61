"""`make gpu` on the CPU, small and without the real model (test_real_model.py has that): it passes, and it can fail."""

import json

import pytest
import torch

from book import gpu_check, gpu_kernels
from lib import kernels


@pytest.fixture(autouse=True)
def small(monkeypatch):
    def nowhere():
        raise FileNotFoundError("no model in this test")

    monkeypatch.setattr(gpu_check, "find_model", nowhere)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_on_the_cpu_it_prints_one_json_and_writes_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_check, "RESULT", tmp_path / "gpu.json")
    assert gpu_check.main() == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["ok"] and result["real_model"] is None and "skip the real model" in err
    assert result["kernel_times"] is None
    assert len([row for row in result["checks"] if row["check"].startswith("kernel ")]) == (
        0 if kernels.missing() else 2 * 9
    )
    assert {row["dtype"] for row in result["checks"]} == {"float32", "bfloat16"}
    assert {"date", "commit", "device", "cuda", "torch", "python", "seconds"} == set(result["provenance"])
    assert all(0 < row["difference"] <= row["bound"] for row in result["checks"])
    assert not list(tmp_path.iterdir())


def test_a_fault_is_seen(monkeypatch):
    right = gpu_check.attend

    def wrong(q, k, v, mask=None, implementation="sdpa"):
        return right(
            q, k, v, mask, 0.9 * q.shape[-1] ** -0.5 if implementation == "sdpa" else None, implementation
        )

    monkeypatch.setattr(gpu_check, "attend", wrong)
    report = gpu_check.Report()
    gpu_check.check_attention(report, torch.device("cpu"), torch.float32)
    assert not any(row["ok"] for row in report.rows if "32 queries" in row["check"])
    report.add("a NaN", torch.tensor([float("nan")]), torch.tensor([1.0, 2.0]).double(), torch.float32)
    assert not report.rows[-1]["ok"]


def test_the_kernels_have_their_times(monkeypatch, capsys):
    """The script of the times, small, with a clock that only calls: what would be measured runs, and every row is whole."""
    cpu = torch.device("cpu")
    if not kernels.missing():
        rows = gpu_kernels.times(cpu, lambda f: (f(), 1.0)[1], compile=lambda f: f, small=True)
        assert [row["kernel"] for row in rows] == ["copy", *gpu_kernels.cases(cpu, small=True)]
        assert all(row["bytes"] > 0 and row["gb_per_s"] == row["bytes"] / 1e6 for row in rows)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.setattr(kernels, "missing", lambda: None)
    report = gpu_check.Report()
    gpu_kernels.check_kernels(report, cpu, torch.float32)
    assert not report.rows and "skip the kernels: no CUDA here" in capsys.readouterr().err
