"""The committed benchmark of MLA: made from the code that is here, complete, and within its goals."""

import json

import pytest

from book.bench import RESULTS, is_stale, load_bench


@pytest.fixture(scope="module")
def mla():
    return load_bench("mla")


def test_the_mla_benchmark_was_measured_with_this_mla_py(mla):
    assert not is_stale(mla, "mla"), (
        "src/lib/mla.py has changed since tests/bench/results/mla.json: run `make bench-mla`"
    )


def test_a_result_of_other_code_is_stale(mla):
    other = json.loads(json.dumps(mla))
    other["provenance"]["lib_mla_sha256"] = "0" * 64
    assert is_stale(other, "mla")


def test_every_context_has_the_four_variants(mla):
    seen = {}
    for row in mla["rows"]:
        seen.setdefault(row["context"], set()).add(row["variant"])
        assert row["ms"] > 0 and row["bound_ms"] > 0
    assert set(seen) >= {512, 1024, 2048, 4096}
    assert all(v == {"expanded", "re-expanded", "absorbed", "transformers"} for v in seen.values()), seen


def test_bytes_held_are_the_arithmetic(mla):
    """float32, one layer: latent 576 numbers a token, expanded 128 * (192 + 128)."""
    for row in mla["rows"]:
        numbers = 128 * (192 + 128) if row["variant"] == "expanded" else 576
        assert row["cache_bytes"] == 4 * numbers * row["context"], row


def test_absorbed_is_ten_times_faster_than_expanding_again(mla):
    at = {row["variant"]: row["ms"] for row in mla["rows"] if row["context"] == 2048}
    assert at["re-expanded"] >= 10 * at["absorbed"]


def test_provenance_says_where_it_was_measured(mla):
    source = mla["provenance"]
    assert source["parameters"] == 187_107_328
    for field in (
        "date",
        "torch",
        "transformers",
        "cpu",
        "cores",
        "threads",
        "bandwidth_GB_per_s",
        "command",
    ):
        assert source[field], field


def test_a_missing_result_names_its_target():
    with pytest.raises(FileNotFoundError, match="make bench-nothing"):
        load_bench("nothing")
    assert RESULTS.name == "results"
