"""`python -m attune`, and the script `attune`: the command line tool that a wheel carries."""

import os
import sys
from pathlib import Path


def main() -> int:
    """Becomes the tool; returns 3 where there is none."""
    tool = Path(__file__).parent / "bin" / "attune"
    if not tool.is_file():
        print(f"attune: there is no {tool}; a build tree has the tool in its bin", file=sys.stderr)
        return 3
    os.execv(tool, [str(tool), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
