"""The tests. Imported before all else, so that what is set here reaches every library."""

import os

# Test files run beside each other on few cores, where the threads of BLAS and OpenMP spin for each
# other: six files took 84 core-seconds with two threads in each worker, 58 with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
