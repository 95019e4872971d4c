"""`python -m core` is `tilehal`."""

from core.cli.main import main

if __name__ == "__main__":
    main()
