"""Files that are there whole or not at all."""

import os
from pathlib import Path
from typing import Final

# What stands here is a way to something that is open already, even where it leads to a plain file.
WAYS: Final = ("/dev/", "/proc/")


def write_whole(path: Path, text: str) -> None:
    """Write `text` to the side and move it into place.

    Where `path` is a symbolic link, the file that it names is written. A device, a pipe or another special file is written
    through, never replaced. Errors: OSError.
    """
    if (path.exists() and not path.is_file()) or str(path.absolute()).startswith(WAYS):
        with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as through:
            through.write(text)
        return
    target = Path(os.path.realpath(path))
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        beside.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)
