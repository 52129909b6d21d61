"""The committed benchmarks of MLA, decoding and sliders: made from the code that is here, complete, and possible. Reads files: 0.1 s."""

import json

import pytest

from book.bench import RESULTS, changed, is_stale, load_bench, pick, race
from book.explore import ALL


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


def test_mla_crosses_near_where_its_flops_per_byte_say(mla):
    crossing = mla["crossing"]
    assert abs(crossing["predicted"] / crossing["measured"] - 1) < 0.25 and crossing["flops_per_byte"] > 0


# ---- decoding

VARIANTS = {"plain", "fast", "compiled", "transformers", "transformers-generate", "llama.cpp", "limit"}


@pytest.fixture(scope="module")
def decode():
    return load_bench("decode")


def cells(decode):
    keys = ("dtype", "batch", "context", "threads")
    return sorted({tuple((key, row[key]) for key in keys) for row in decode["rows"]})


def test_the_decode_benchmark_was_measured_with_this_code(decode):
    assert changed(decode) == [], "lib has changed since tests/bench/results/decode.json: `make bench-decode`"
    assert {"lib_fast_sha256", "lib_compiled_sha256", "lib_decode_step.cpp_sha256"} <= set(
        decode["provenance"]
    )


def test_every_cell_has_every_variant_or_says_why_not(decode):
    absent = {each["variant"] for each in decode["absent"] if each["why"]}
    assert len(cells(decode)) == 2 * 2 * 2 * 2
    for cell in cells(decode):
        assert set(pick(decode, **dict(cell))) | absent == VARIANTS, cell
    for part, keys in (
        ("prefill", ("tokens", "ms")),
        ("load", ("load_seconds", "peak_MiB")),
        ("calls", ("ms_least",)),
    ):
        assert {row["dtype"] for row in decode[part]} == {"float32", "bfloat16"}
        assert all(row[key] > 0 for row in decode[part] for key in keys)


def test_no_variant_beats_the_limit(decode):
    """What a step must read, over the fastest plain read of the same run; the variants by their medians."""
    for cell in cells(decode):
        rows = pick(decode, **dict(cell))
        limit = rows.pop("limit")
        assert limit["ms_per_token"] == pytest.approx(
            1e-6 * limit["bytes"] / limit["GB_per_s"] / limit["batch"], rel=1e-3
        )
        assert limit["GB_per_s"] == max(limit["GB_per_s_of_each"].values())
        for name, row in rows.items():
            assert row["ms_per_token"] >= limit["ms_per_token"], (cell, name)
            assert row["ms_least"] <= row["ms_per_token"] <= row["ms_most"]


def test_the_compiled_step_reaches_its_goals(decode):
    """Ratios within one run at batch 1, 64 tokens, one thread."""
    for dtype, goal in (("float32", 1.6), ("bfloat16", 2.2)):
        ms = {
            name: row["ms_per_token"]
            for name, row in pick(decode, dtype=dtype, batch=1, context=64, threads=1).items()
        }
        assert ms["transformers"] / ms["compiled"] >= goal
        assert ms["llama.cpp"] / ms["compiled"] >= 0.75


def test_a_race_prints_shares_of_the_limit(decode, capsys):
    ms = race(decode, ("limit", "plain"), dtype="float32", batch=1, context=64, threads=1)
    assert set(ms) == {"limit", "plain"} and "limit" in capsys.readouterr().out


def test_a_missing_result_names_its_target():
    with pytest.raises(FileNotFoundError, match="make bench-nothing"):
        load_bench("nothing")
    assert RESULTS.name == "results"


# ---- sliders


def test_every_explorer_has_its_row_and_meets_both_goals():
    """Medians from key press to picture, of one run: the bare sine beside it is timed as often as the explorer itself."""
    sliders = load_bench("sliders")
    assert {row["explorer"] for row in sliders["rows"]} == set(ALL)
    for row in sliders["rows"]:
        ours, sine, other = (row[key]["median_ms"] for key in ("ours", "sine_beside", "interact"))
        assert row["ours"]["moves"] == row["sine_beside"]["moves"] == row["interact"]["moves"]
        assert ours <= 1.5 * sine, row["explorer"]
        assert ours <= max(other / 4, 1.2 * sine), row["explorer"]
