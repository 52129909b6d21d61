"""Three cards by their data sheets, and how many programs of a kernel fit on one multiprocessor. Plain numbers, no torch.

Sources. A100 80GB SXM: NVIDIA A100 data sheet (312 TFLOPS BF16 dense, 2,039 GB/s) and Ampere whitepaper (108 multiprocessors).
H100 SXM: NVIDIA H100 data sheet (1,979 TFLOPS BF16 with sparsity, half of it dense; 3.35 TB/s) and Hopper whitepaper (132).
RTX 4090: NVIDIA Ada whitepaper, appendix A (165.2 TFLOPS BF16 with FP32 accumulate, dense; 1,008 GB/s; 128 multiprocessors).
Limits per multiprocessor: CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability" (8.0, 8.9, 9.0).
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """flops per second (BF16, dense), bandwidth in bytes per second; memory and limits of one multiprocessor in bytes and counts."""

    name: str
    capability: int
    flops: float
    bandwidth: float
    multiprocessors: int
    shared: int
    shared_per_program: int
    threads: int
    programs: int
    registers: int = 65_536

    @property
    def ridge(self):
        """FLOPs per byte from which the card waits for arithmetic, no longer for memory."""
        return self.flops / self.bandwidth


KIB = 1024
A100 = Card("A100 80GB SXM", 80, 312e12, 2.039e12, 108, 164 * KIB, 163 * KIB, 2048, 32)
H100 = Card("H100 SXM", 90, 989.5e12, 3.35e12, 132, 228 * KIB, 227 * KIB, 2048, 32)
RTX_4090 = Card("RTX 4090", 89, 165.2e12, 1.008e12, 128, 100 * KIB, 99 * KIB, 1536, 24)
CARDS = (A100, H100, RTX_4090)


def resident(card, registers, shared, threads):
    """(programs that fit on one multiprocessor at a time, what limits them).

    Registers are handed out per warp of 32 threads, 256 at a time; each program also takes 1 KiB of shared memory for the system.
    Zero programs: the kernel does not start on this card.
    """
    warps = -(-threads // 32)
    per_warp = -(-32 * registers // 256) * 256
    fits = {
        "registers": card.registers // (warps * per_warp),
        "shared memory": card.shared // (shared + KIB) if shared <= card.shared_per_program else 0,
        "threads": card.threads // (32 * warps),
        "programs": card.programs,
    }
    limit = min(fits, key=fits.get)
    return fits[limit], limit


def occupancy(card, registers, shared, threads):
    """Threads that are resident over the most that a multiprocessor holds, 0 to 1."""
    return resident(card, registers, shared, threads)[0] * threads / card.threads
