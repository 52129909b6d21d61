"""The configs that come with the book are the collected ones, and the table of the frontier is what lib reads in them."""

import csv
import subprocess
import sys
from pathlib import Path

import pytest

from book import configs
from lib import kv_bytes, naive_kv_elements_per_token, read_config, sequence_bytes

COLLECTED = Path(__file__).parent / "data" / "configs"


def test_packaged_configs_are_unchanged_copies():
    assert len(configs.names()) >= 8
    for name in configs.names():
        assert configs.path(name).read_bytes() == (COLLECTED / f"{name}.json").read_bytes(), name


def test_table_equals_lib():
    assert configs.frontier() == configs.make_frontier(COLLECTED), "python -m book.configs tests/data/configs"


@pytest.mark.parametrize("tokens", [1, 128, 4096, 131072, 1_000_000])
def test_bytes_equal_lib_at_any_length(tokens):
    for row in configs.frontier():
        cfg = read_config(COLLECTED / f"{row.name}.json")
        assert row.cache_bytes(tokens) == kv_bytes(cfg, tokens), row.name
        assert row.sequence_bytes(tokens) == sequence_bytes(cfg, tokens), row.name
        assert row.naive_bytes(tokens) == 2 * tokens * naive_kv_elements_per_token(cfg), row.name


def test_table_equals_the_facts_that_were_measured():
    with (COLLECTED / "facts.csv").open(encoding="utf-8") as f:
        facts = {row["model"]: row for row in csv.DictReader(f)}
    rows = configs.frontier()
    assert {row.name for row in rows} == set(facts) and len(rows) == 53
    for row in rows:
        fact = facts[row.name]
        assert row.parameters == int(fact["total_params_exact"]), row.name
        assert row.elements == int(fact["kv_elements_per_token"]), row.name
        assert row.cache_bytes(131072) == int(fact["kv_bytes_128k_capped"]), row.name
    assert sum(row.naive != row.elements for row in rows) == 21
    assert sum(row.naive_bytes(131072) != row.cache_bytes(131072) for row in rows) == 26


def test_an_unknown_name_is_told_the_names():
    with pytest.raises(ValueError, match="no config 'llama-9'.*llama-3-8b"):
        configs.load("llama-9")


def test_command_refuses_what_is_no_folder(tmp_path):
    command = [sys.executable, "-m", "book.configs", str(tmp_path / "absent")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "usage" in done.stderr


def test_no_torch():
    code = "import sys; from book.configs import frontier; frontier(); print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )
