#!/usr/bin/env bash
# Throughput and model FLOP utilisation of `dialrl update` on one GPU; results in benchmarks/results/update_gpu.json.
#   bash benchmarks/update_gpu.sh [--models 0.6B 1.7B] [--tokens 4096 16384]
set -euo pipefail
cd "$(dirname "$0")/.."
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
exec "${PYTHON:-.venv/bin/python}" benchmarks/update_gpu.py "$@"
