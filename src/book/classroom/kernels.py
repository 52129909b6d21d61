"""A cap on running notebooks: every open chapter is a kernel, and nobody closes them."""

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from tornado.web import HTTPError
from traitlets import Int


class CappedKernelManager(AsyncMappingKernelManager):
    """Refuses the kernel after the last one allowed, and says what to do."""

    max_kernels = Int(3, min=1, config=True, help="Notebooks that one student may have running at once.")

    async def _async_start_kernel(self, **kwargs):
        is_new = kwargs.get("kernel_id") not in self
        if is_new and len(self.list_kernel_ids()) >= self.max_kernels:
            raise HTTPError(
                409,
                f"{self.max_kernels} notebooks are running, which is the limit of this class. "
                "Shut one down under 'Running Terminals and Kernels' (its saved work stays), then open this one.",
            )
        return await super()._async_start_kernel(**kwargs)

    start_kernel = _async_start_kernel  # the parent binds the public name in its own class body
