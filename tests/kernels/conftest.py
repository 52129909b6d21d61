"""Without Triton nothing here is collected; the header of the run says so (tests/conftest.py)."""

from lib import kernels

collect_ignore_glob = ["test_*.py"] if kernels.missing() else []
