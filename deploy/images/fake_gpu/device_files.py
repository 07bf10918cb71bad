"""The device files of the fake GPUs: `/dev/nvidiaN` with NVIDIA's own numbers and no driver behind them.

Opening one that a container was given fails with ENXIO (nothing there); making one's own fails with EPERM. So a
container really reaches the devices it was allocated and no others.
"""

import os
import stat
from pathlib import Path

NVIDIA_MAJOR = 195


def ensure(directory: Path, index: int) -> None:
    """Make the device file of this number, replacing anything else that has its name."""
    path = directory / f"nvidia{index}"
    device = os.makedev(NVIDIA_MAJOR, index)
    if path.exists() and path.stat().st_rdev == device:
        return
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR | 0o666, device)
    path.chmod(0o666)  # mknod's mode went through the umask
