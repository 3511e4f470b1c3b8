"""One thread for every test: the models here are tiny, and two workers share two cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
