"""``python -m engine.inference.native``: build the native step, or say why it cannot be had."""

from __future__ import annotations

import sys

from engine.inference.native.build import NativeUnavailable, build, find, load, writable_folder


def main() -> int:
    """Build for this machine, if that has not been done. 1 where it cannot be."""
    found = find()
    try:
        if found is None:
            print("native step: compiling for this processor, which takes up to a minute")
            found = build(writable_folder())
        path = load(found).matmul_path().decode()
    except NativeUnavailable as error:
        print(f"native step: not available, so decoding runs slower, in torch: {error}")
        return 1
    print(f"native step: ready ({path} kernels, {found})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
