#!/usr/bin/env bash
# install_horovod.sh [--mpi] [--nccl] [--python PY] [--show]
#
# Builds Horovod 0.28.1 against the torch that PY (default: python3) already has, installs it into
# PY's environment, and has two ranks sum a number through each controller that it built.
# Needs a C++17 compiler and make; takes some minutes.
#
#   --mpi    the MPI controller beside the Gloo one.  Needs an MPI with its compiler wrapper: the
#            mpicxx beside PY (`pip install mpich`), else the one on PATH.  Start ranks with its mpiexec,
#            or with horovodrun --gloo: horovodrun alone then takes MPI, and 0.28.1 does not know MPICH 5.
#   --nccl   NCCL for gradients on GPUs.  Needs a torch for CUDA, nvcc (on PATH, or in
#            HOROVOD_CUDA_HOME/bin) and NCCL: HOROVOD_NCCL_HOME, the pip package that torch brings, or
#            the system's.
#   --show   print what the build would be given, and stop.
#
# The wheel is kept in ${DLIO_TORCH_WHEELS:-~/.cache/dlio_torch/wheels}/<torch version>-<flavour>
# and used again by the next call.  It is valid for that very torch only (C++ ABI), hence the folder.
# A wheel built with an environment's own MPI finds the MPI of whichever environment it is installed in.
#
# Why not `pip install horovod`: Horovod is a source distribution whose build must see torch, which
# pip's isolated build hides; pip then installs, and caches, a Horovod without its torch extension.
# And its CMake files ask for C++14 where torch's headers need C++17.  Nothing in the source
# distribution is patched for that: a CMake toolchain file, which CMake >= 3.21 takes from the
# environment, makes its "C++14" mean C++17.
set -euo pipefail

HOROVOD=0.28.1
CHECK_S=120 # for two ranks to meet and sum, on a busy machine
MPI=0
NCCL=0
SHOW=0
PY=${PYTHON:-python3}

fail() { echo "install_horovod: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --mpi) MPI=1 ;;
    --nccl) NCCL=1 ;;
    --show) SHOW=1 ;;
    --python) [ $# -ge 2 ] || fail "--python needs a value"; PY=$2; shift ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "usage: $0 [--mpi] [--nccl] [--python PY] [--show]" >&2; exit 2 ;;
  esac
  shift
done

TORCH=$("$PY" -W ignore -c 'import torch; print(torch.__version__)') ||
  fail "$PY has no torch; install torch first"
TAG=$("$PY" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
PREFIX=$("$PY" -c 'import sys; print(sys.prefix)')
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
FLAVOUR=gloo
RPATH= # where else the extension looks for libraries

if [ "$MPI" = 1 ]; then
  # The environment's own MPI comes first, whatever PATH says: its mpiexec will start the ranks.
  MPICXX=$PREFIX/bin/mpicxx
  [ -x "$MPICXX" ] || MPICXX=$(command -v mpicxx) ||
    fail "--mpi needs mpicxx, beside $PY or on PATH; pip install mpich, or install an MPI with its compiler wrappers"
  if [ "${MPICXX#"$PREFIX"/}" != "$MPICXX" ]; then
    # lib/pythonX.Y/site-packages/horovod/torch -> lib, of the environment that it is installed in.
    RPATH='\$ORIGIN/../../../..'
  fi
  # A build for one MPI does not load with another: what the wrapper calls is part of the key, but not
  # where the environment lies.
  FLAVOUR=mpi-$("$MPICXX" -show 2>/dev/null | sed "s|$PREFIX|\$ENV|g" | cksum | cut -d' ' -f1)
fi

if [ "$NCCL" = 1 ]; then
  CUDA=$("$PY" -W ignore -c 'import torch; print(torch.version.cuda or "")')
  [ -n "$CUDA" ] || fail "--nccl needs a torch for CUDA, but torch $TORCH of $PY has none"
  NVCC=${HOROVOD_CUDA_HOME:+$HOROVOD_CUDA_HOME/bin/nvcc}
  [ -n "$NVCC" ] || NVCC=$(command -v nvcc) ||
    fail "--nccl needs nvcc on PATH, or HOROVOD_CUDA_HOME; install the CUDA toolkit $CUDA"
  [ -x "$NVCC" ] || fail "HOROVOD_CUDA_HOME=$HOROVOD_CUDA_HOME holds no bin/nvcc"
  # The nvcc on PATH may be a script or a link; CMake looks for the rest of the toolkit beside the real one.
  BESIDE=$("$NVCC" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ _HERE_=//p') || true
  [ ! -x "$BESIDE/nvcc" ] || NVCC=$BESIDE/nvcc
  RELEASE=$("$NVCC" --version | sed -n 's/.*release \([0-9.]*\),.*/\1/p')
  [ "${RELEASE%%.*}" = "${CUDA%%.*}" ] ||
    fail "torch $TORCH is for CUDA $CUDA, but $NVCC is of CUDA ${RELEASE:-unknown}; install the CUDA toolkit $CUDA"
  # The home that holds both halves of NCCL; the pip package's library has no name without a version.
  PACKAGE=$("$PY" -c '
import importlib.util
spec = importlib.util.find_spec("nvidia")
for place in spec.submodule_search_locations if spec else []:
    print(place + "/nccl")' | head -n 1)
  for home in ${HOROVOD_NCCL_HOME:+"$HOROVOD_NCCL_HOME"} ${PACKAGE:+"$PACKAGE"} /usr /usr/local "${NVCC%/bin/nvcc}"; do
    [ -f "$home/include/nccl.h" ] || continue
    library=$(ls -d "$home"/lib*/libnccl.so "$home"/lib*/libnccl.so.2 "$home"/lib/*/libnccl.so* 2>/dev/null | head -n 1) || true
    [ -z "$library" ] || break
  done
  [ -n "${library:-}" ] ||
    fail "--nccl finds no nccl.h with its libnccl.so; pip install nvidia-nccl-cu${CUDA%%.*}, or set HOROVOD_NCCL_HOME"
  mkdir "$WORK/nccl"
  ln -s "$library" "$WORK/nccl/libnccl.so"
  export HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED
  export CUDA_HOME=${NVCC%/bin/nvcc} # where torch says that libcudart is
  export HOROVOD_NCCL_INCLUDE=$home/include HOROVOD_NCCL_LIB=$WORK/nccl
  # By default one kernel for every architecture that nvcc knows; torch's own are enough.
  [ -n "${HOROVOD_BUILD_CUDA_CC_LIST:-}" ] || HOROVOD_BUILD_CUDA_CC_LIST=$("$PY" -W ignore -c '
import re, torch
print(",".join(re.findall(r"sm_(\d+)\b", " ".join(torch.cuda.get_arch_list()))))')
  [ -z "$HOROVOD_BUILD_CUDA_CC_LIST" ] || export HOROVOD_BUILD_CUDA_CC_LIST
  FLAVOUR=$FLAVOUR-nccl
else
  unset "${!HOROVOD_GPU_@}"
  # With a CUDA toolkit in sight of a torch for CUDA, Horovod's CMake files insist on it; else on nothing.
  TOOLKIT=$("$PY" -W ignore -c '
import torch
if torch.version.cuda:
    from torch.utils.cpp_extension import CUDA_HOME
    print(CUDA_HOME or "")' 2>/dev/null) || TOOLKIT=
fi
CACHE=${DLIO_TORCH_WHEELS:-$HOME/.cache/dlio_torch/wheels}/$TORCH-$FLAVOUR
wheel() { ls "$CACHE/horovod-$HOROVOD-$TAG-"*.whl 2>/dev/null | head -n 1; }

export CMAKE_TOOLCHAIN_FILE=$WORK/toolchain.cmake
export CMAKE_POLICY_VERSION_MINIMUM=3.5      # CMake 4 refuses the 2.8.12 that the bundled gloo asks for
export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
export HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_NVTX=1 MAKEFLAGS=${MAKEFLAGS:--j$(nproc)}
if [ "$MPI" = 1 ]; then export HOROVOD_WITH_MPI=1; else export HOROVOD_WITHOUT_MPI=1; fi
{
  cat <<'T'
if(CMAKE_CXX_COMPILER_ID)     # second reading: right after project(), the compiler is known
  set(CMAKE_CXX14_STANDARD_COMPILE_OPTION -std=c++17)
  set(CMAKE_CXX14_EXTENSION_COMPILE_OPTION -std=gnu++17)
else()                        # first reading: as the toolchain file
  set(CMAKE_PROJECT_INCLUDE "${CMAKE_CURRENT_LIST_FILE}")
  # Its headers leave out some of the standard library's, which GCC brought along up to version 12.
  set(CMAKE_CXX_FLAGS_INIT "-include cstdint -include stdexcept -include string")
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG" CACHE STRING "")
endif()
T
  [ "$NCCL" = 1 ] || [ -n "$TOOLKIT" ] || cat <<'T'
set(CMAKE_CUDA_COMPILER "")   # a CPU build: don't look for nvcc
set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
T
  [ "$MPI" = 0 ] || echo "set(MPI_CXX_COMPILER \"$MPICXX\" CACHE FILEPATH \"\")"
  [ -z "$RPATH" ] || echo "set(CMAKE_BUILD_RPATH \"$RPATH\")   # before the place where it was built"
  [ "$NCCL" = 0 ] || echo "set(CMAKE_CUDA_COMPILER \"$NVCC\" CACHE FILEPATH \"\")"
} > "$CMAKE_TOOLCHAIN_FILE"

if [ "$SHOW" = 1 ]; then
  echo "wheel: $(wheel | grep . || echo "to be built in $CACHE")"
  env | grep -E '^(HOROVOD_|CMAKE_|CUDA_HOME=|MAKEFLAGS=)' | sort
  cat "$CMAKE_TOOLCHAIN_FILE"
  [ "$NCCL" = 0 ] || echo "NCCL: $library"
  exit 0
fi

"$PY" -m pip --version >/dev/null 2>&1 || "$PY" -m ensurepip >/dev/null || fail "$PY has no pip"
pip() { "$PY" -m pip --disable-pip-version-check "$@"; }

if [ -z "$(wheel)" ]; then
  { command -v c++ || command -v g++ || [ -n "${CXX:-}" ]; } >/dev/null || fail "no C++ compiler on PATH; install g++"
  command -v make >/dev/null || fail "no make on PATH; install make"
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
  echo "install_horovod: building horovod $HOROVOD ($FLAVOUR) for torch $TORCH, some minutes" >&2
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

# Two ranks that sum their numbers, through each controller; then what was built.
cat > "$WORK/sum.py" <<'P'
import sys
import warnings

warnings.simplefilter("ignore")
import horovod.torch as hvd
import torch

hvd.init()
controller = "mpi" if hvd.mpi_enabled() else "gloo"
total = hvd.allreduce(torch.tensor([hvd.rank() + 1.0]), op=hvd.Sum, name="sum").item()
if (hvd.size(), total, controller) != (2, 3.0, sys.argv[1]):
    sys.exit(f"{hvd.size()} ranks summed to {total} through {controller}, not 2 to 3.0 through {sys.argv[1]}")
if sys.argv[2] == "1" and not hvd.nccl_built():
    sys.exit("NCCL was asked for and not built")
hvd.shutdown()
P
summed() { # CONTROLLER COMMAND...: its ranks inherit no launcher's and no user's settings
  local controller=$1; shift
  (
    unset "${!HOROVOD_@}" "${!PMI_@}" "${!OMPI_@}" 2>/dev/null || true
    exec timeout -k 5 "$CHECK_S" "$@" "$PY" "$WORK/sum.py" "$controller" "$NCCL"
  ) >"$WORK/log" 2>&1 || {
    local code=$?
    cat "$WORK/log" >&2
    [ "$code" != 124 ] || fail "two ranks did not sum through $controller within $CHECK_S s; remove $CACHE and try again"
    fail "two ranks cannot sum through $controller; remove $CACHE and try again"
  }
}
summed gloo "$PY" -W ignore -m horovod.runner.launch -np 2 -H localhost:2 --gloo --network-interfaces lo
checked=gloo
if [ "$MPI" = 1 ]; then
  MPIEXEC=${MPICXX%/*}/mpiexec
  [ -x "$MPIEXEC" ] || MPIEXEC=$(command -v mpiexec) || fail "there is no mpiexec beside $MPICXX"
  case $("$MPIEXEC" --version 2>&1) in
    *"Open MPI"*|*OpenRTE*) summed mpi "$MPIEXEC" --allow-run-as-root --oversubscribe --bind-to none -n 2 ;;
    *) summed mpi "$MPIEXEC" -n 2 ;;
  esac
  checked="gloo and mpi"
fi
[ "$NCCL" = 0 ] || checked="$checked, NCCL built and not tried"
echo "horovod $HOROVOD for torch $TORCH: two ranks summed through $checked"
