#!/usr/bin/env bash
# install_horovod.sh [--mpi] [--python PY]
#
# Builds Horovod 0.28.1 against the torch that PY (default: python3) already has, and installs it
# into PY's environment.  Controllers: Gloo, and with --mpi also MPI, which needs an mpicxx on PATH
# now and its libmpi at run time.  Needs a C++17 compiler and make; takes some minutes.
#
# The wheel is kept in ${DLIO_TORCH_WHEELS:-~/.cache/dlio_torch/wheels}/<torch version>-<controller>
# and used again by the next call.  It is valid for that very torch only (C++ ABI), hence the folder.
#
# Why not `pip install horovod`: Horovod is a source distribution whose build must see torch, which
# pip's isolated build hides; pip then installs, and caches, a Horovod without its torch extension.
# And its CMake files ask for C++14 where torch's headers need C++17.  Nothing in the source
# distribution is patched for that: a CMake toolchain file, which CMake >= 3.21 takes from the
# environment, makes its "C++14" mean C++17.
set -euo pipefail

HOROVOD=0.28.1
CONTROLLER=gloo
PY=${PYTHON:-python3}

fail() { echo "install_horovod: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --mpi) CONTROLLER=mpi ;;
    --python) [ $# -ge 2 ] || fail "--python needs a value"; PY=$2; shift ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "usage: $0 [--mpi] [--python PY]" >&2; exit 2 ;;
  esac
  shift
done

TORCH=$("$PY" -W ignore -c 'import torch; print(torch.__version__)') ||
  fail "$PY has no torch; install torch first"
TAG=$("$PY" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
FLAVOUR=$CONTROLLER
if [ "$CONTROLLER" = mpi ]; then
  command -v mpicxx >/dev/null || fail "--mpi needs mpicxx on PATH; install an MPI with its compiler wrappers"
  # A build for one MPI does not load with another: what the wrapper calls is part of the key.
  FLAVOUR=mpi-$(mpicxx -show 2>/dev/null | cksum | cut -d' ' -f1)
fi
CACHE=${DLIO_TORCH_WHEELS:-$HOME/.cache/dlio_torch/wheels}/$TORCH-$FLAVOUR
"$PY" -m pip --version >/dev/null 2>&1 || "$PY" -m ensurepip >/dev/null || fail "$PY has no pip"
pip() { "$PY" -m pip --disable-pip-version-check "$@"; }
wheel() { ls "$CACHE/horovod-$HOROVOD-$TAG-"*.whl 2>/dev/null | head -n 1; }

if [ -z "$(wheel)" ]; then
  { command -v c++ || command -v g++ || [ -n "${CXX:-}" ]; } >/dev/null || fail "no C++ compiler on PATH; install g++"
  command -v make >/dev/null || fail "no make on PATH; install make"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  # What the source distribution's setup.py imports or asks for: pip installs none of it where the
  # build is not isolated.
  pip install -q "setuptools>=70.1" wheel packaging cloudpickle psutil pyyaml cffi
  cmake_ok=$({ cmake --version 2>/dev/null || true; } | "$PY" -c '
import re, sys
found = re.search(r"version (\d+)\.(\d+)", sys.stdin.read())
print(int(bool(found) and tuple(map(int, found.groups())) >= (3, 21)))')
  if [ "$cmake_ok" != 1 ]; then
    pip install -q --target "$WORK/cmake" "cmake>=3.21,<4"
    printf '#!/bin/sh\nPYTHONPATH=%s exec %s/bin/cmake "$@"\n' "$WORK/cmake" "$WORK/cmake" > "$WORK/cmake-run"
    chmod +x "$WORK/cmake-run"
    export HOROVOD_CMAKE=$WORK/cmake-run
  fi
  cat > "$WORK/toolchain.cmake" <<'T'
if(CMAKE_CXX_COMPILER_ID)     # second reading: right after project(), the compiler is known
  set(CMAKE_CXX14_STANDARD_COMPILE_OPTION -std=c++17)
  set(CMAKE_CXX14_EXTENSION_COMPILE_OPTION -std=gnu++17)
else()                        # first reading: as the toolchain file
  set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG" CACHE STRING "")
endif()
if(NOT DEFINED ENV{HOROVOD_GPU_OPERATIONS})   # a CPU build: don't look for nvcc
  set(CMAKE_CUDA_COMPILER "")
  set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
endif()
T
  export CMAKE_TOOLCHAIN_FILE=$WORK/toolchain.cmake
  export CMAKE_POLICY_VERSION_MINIMUM=3.5      # CMake 4 refuses the 2.8.12 that the bundled gloo asks for
  export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
  export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_NVTX=1 MAKEFLAGS=${MAKEFLAGS:--j$(nproc)}
  if [ "$CONTROLLER" = mpi ]; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
  echo "install_horovod: building horovod $HOROVOD ($CONTROLLER) for torch $TORCH, some minutes" >&2
  # --no-cache-dir: pip's own cache of built wheels does not know which torch a wheel was built for.
  pip wheel -q --no-cache-dir --no-deps --no-build-isolation --no-binary horovod \
      -w "$WORK/wheel" "horovod==$HOROVOD" ||
    fail "the build failed; its messages are above"
  # Copied beside, then renamed: an interrupted call leaves no half wheel in the cache.
  mkdir -p "$CACHE"
  built=$(ls "$WORK"/wheel/horovod-"$HOROVOD"-*.whl)
  cp "$built" "$CACHE/.${built##*/}.$$"
  mv "$CACHE/.${built##*/}.$$" "$CACHE/${built##*/}"
fi

pip install -q "$(wheel)"                                   # with its requirements
# Again, by force: pip leaves a horovod of this version alone, even one built without torch.
pip install -q --no-deps --force-reinstall "$(wheel)"
"$PY" -W ignore - "$CONTROLLER" <<'P' || fail "the installed horovod does not work; remove $CACHE and try again"
import sys

import horovod
import horovod.torch as hvd

controllers = [name for name, built in (("gloo", hvd.gloo_built()), ("mpi", hvd.mpi_built())) if built]
if sys.argv[1] not in controllers:
    sys.exit(f"install_horovod: controller {sys.argv[1]} was not built, only {controllers}")
print("horovod", horovod.__version__, "with", " and ".join(controllers))
P
