"""Settings of every student's server. For real use: copy to /etc/jupyter/ of the machine or the image."""

import os

c = get_config()  # noqa: F821 (Jupyter defines it)

# A kernel idle for two hours goes, and so does the server when no kernel is left: a lecture of 90 minutes never meets it,
# a forgotten tab does (cull_connected). Variables are lost, files are not.
c.MappingKernelManager.cull_idle_timeout = int(os.environ.get("BOOK_CLASS_CULL_SECONDS", "7200"))
c.MappingKernelManager.cull_interval = min(300, max(1, c.MappingKernelManager.cull_idle_timeout // 4))
c.MappingKernelManager.cull_connected = True
c.MappingKernelManager.cull_busy = False
c.ServerApp.shutdown_no_activity_timeout = c.MappingKernelManager.cull_idle_timeout

c.ServerApp.kernel_manager_class = "book.classroom.kernels.CappedKernelManager"
c.CappedKernelManager.max_kernels = int(os.environ.get("BOOK_CLASS_MAX_KERNELS", "3"))

# A slider dragged fast sends a few MB of pictures in a second; the default of 1 MB/s would drop them with a warning.
c.ServerApp.iopub_data_rate_limit = 2e7

c.ServerApp.log_level = "WARN"  # thirty servers share one log
c.ServerApp.terminals_enabled = False  # no chapter needs a shell
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"  # no outside request, thirty times over

if hasattr(os, "geteuid") and os.geteuid() == 0:
    c.ServerApp.allow_root = True  # trying it out in a container; real students are never root
