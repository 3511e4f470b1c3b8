"""``python -m dialrl`` is the command ``dialrl``, also where no script was installed (torchrun, a checkout)."""

from dialrl.cli import main

if __name__ == "__main__":
    main()
