"""`make gpu` on the CPU, small and without the real model (test_real_model.py has that): it passes, and it can fail."""

import itertools
import json

import pytest
import torch

from book import gpu_check, gpu_decode, gpu_kernels
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
    assert all(0 <= row["difference"] <= row["bound"] for row in result["checks"])
    assert all(row["difference"] for row in result["checks"] if not row["check"].startswith("decode, "))
    assert result["decoding"]["model"] == "tiny" and result["decoding"]["copy_GB_per_s"] > 0
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


def test_rows_of_decoding_are_those_of_bench_decode(small, capsys):
    """Every dtype, batch, context and variant once, with its bytes over its time; on CUDA `graph` comes on top."""
    report = gpu_check.Report()
    result = gpu_decode.decode(report, torch.device("cpu"))
    grid = itertools.product(
        ("float32", "bfloat16"), gpu_decode.CPU["batches"], gpu_decode.CPU["contexts"],
        ("plain", "fast", "static", "limit"),
    )  # fmt: skip
    fields = ("dtype", "batch", "context", "variant")
    assert [tuple(row[name] for name in fields) for row in result["rows"]] == list(grid)
    count = sum(p.numel() for p in gpu_decode.tiny_model(torch.float32).parameters())
    for row in result["rows"]:
        size = {"float32": 4, "bfloat16": 2}[row["dtype"]]
        assert row["bytes"] == size * (count + 2 * 2 * 2 * 8 * row["batch"] * row["context"])
        seconds = row["ms_per_token"] * row["batch"] / 1e3
        assert row["GB_per_s"] == pytest.approx(row["bytes"] / seconds / 1e9)
        assert row["fraction_of_copy"] == pytest.approx(row["GB_per_s"] / result["copy_GB_per_s"])
        if row["variant"] == "limit":
            assert row["fraction_of_copy"] == pytest.approx(1)
        else:
            assert 0 < row["ms_least"] <= row["ms_per_token"] <= row["ms_most"] and row["steps"] == 4
    assert len(report.rows) == 2 * 2 * 2 * 2 and all(row["ok"] for row in report.rows)


@pytest.mark.parametrize("wrong", ["one position", "NaN"])
def test_a_step_that_stays_at_its_position_is_seen(wrong, monkeypatch, capsys):
    class Stuck(gpu_decode.StaticDecode):
        def __call__(self, idx):
            logits = super().__call__(idx)
            self.first = getattr(self, "first", logits)
            if wrong == "one position":
                return self.first
            return (
                logits * float("nan") if self.cache.length in (6, 22) else logits
            )  # the first position alone

    monkeypatch.setattr(gpu_decode, "StaticDecode", Stuck)
    report = gpu_check.Report()
    gpu_decode.decode(report, torch.device("cpu"))
    assert {row["ok"] for row in report.rows if "static" in row["check"]} == {False}
    assert all(row["ok"] for row in report.rows if "fast" in row["check"])


def test_without_the_model_nothing_is_timed_on_cuda(monkeypatch, capsys):
    def nowhere():
        raise FileNotFoundError("no model in this test")

    monkeypatch.setattr(gpu_decode, "find_model", nowhere)
    assert gpu_decode.decode(gpu_check.Report(), torch.device("cuda")) is None
    assert "skip decoding: no model" in capsys.readouterr().err
