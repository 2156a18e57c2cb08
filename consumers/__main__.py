"""`python -m consumers` is `streamnb`."""

from __future__ import annotations

from consumers.cli.commands import main

if __name__ == "__main__":
    main()
