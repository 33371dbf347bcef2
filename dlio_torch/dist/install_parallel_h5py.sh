#!/usr/bin/env bash
# install_parallel_h5py.sh [--python PY]
#
# Builds h5py, of the version that PY (default: python3) already has, against a parallel HDF5
# (HDF5_MPI=ON), and mpi4py for the same MPI, installs both into PY's environment, and lets two
# ranks read a file together.  access.io=collective and access.io=independent need that for HDF5.
#
# The parallel HDF5 is looked for in HDF5_DIR (a prefix with include/ and lib/), then by h5pcc on
# PATH, then by pkg-config (hdf5-mpich, hdf5-openmpi, hdf5-mpi, hdf5).  On Debian and Ubuntu
# `apt-get install libhdf5-mpich-dev mpich` or `libhdf5-openmpi-dev openmpi-bin` brings one; sites
# have a module (hdf5-parallel).  Its MPI's compiler is the one that h5pcc calls, or MPICC; its
# mpiexec the one beside that compiler, or MPIEXEC.  Start runs with that mpiexec: ranks of another
# MPI do not see each other.  Takes some minutes.
#
# The wheels are kept in ${DLIO_TORCH_WHEELS:-~/.cache/dlio_torch/wheels}/parallel-h5py-<key> and
# used again by the next call; the key is of the HDF5, its MPI and h5py's version.
set -euo pipefail

PY=${PYTHON:-python3}
fail() { echo "install_parallel_h5py: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --python) [ $# -ge 2 ] || fail "--python needs a value"; PY=$2; shift ;;
    -h|--help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;;
    *) echo "usage: $0 [--python PY]" >&2; exit 2 ;;
  esac
  shift
done

# The h5py that is there decides the version: everything else was tried with it.
H5PY=$("$PY" -c 'from importlib.metadata import version; print(version("h5py"))' 2>/dev/null) ||
  fail "$PY has no h5py; install dlio_torch first"
MPI4PY=$("$PY" -c 'from importlib.metadata import version; print(version("mpi4py"))' 2>/dev/null) || MPI4PY=
TAG=$("$PY" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
"$PY" -m pip --version >/dev/null 2>&1 || "$PY" -m ensurepip >/dev/null || fail "$PY has no pip"
pip() { "$PY" -m pip --disable-pip-version-check "$@"; }

# --- where the parallel HDF5 is: INC and LIB, and the compiler of its MPI ---
INC='' LIB='' FOUND='' CC_OF_HDF5=''
is_parallel() { grep -qs 'define H5_HAVE_PARALLEL 1' "$1"/H5pubconf*.h; }
library_in() { ls "$1"/libhdf5.so "$1"/libhdf5.a 2>/dev/null | head -n 1; }
take() { # take INC LIB WHERE: if that is a parallel HDF5
  if [ -z "$INC" ] && is_parallel "$1" && [ -n "$(library_in "$2")" ]; then INC=$1 LIB=$2 FOUND=$3; fi
}
flags() { tr ' ' '\n' | sed -n "s/^$1//p" | head -n 1; }
if [ -n "${HDF5_DIR:-}" ]; then
  take "$HDF5_DIR/include" "$HDF5_DIR/lib" "HDF5_DIR"
  take "$HDF5_DIR/include" "$HDF5_DIR/lib64" "HDF5_DIR"
  [ -n "$INC" ] || fail "HDF5_DIR=$HDF5_DIR holds no parallel HDF5 (include/H5pubconf.h with H5_HAVE_PARALLEL, and lib/libhdf5)"
  [ -x "$HDF5_DIR/bin/h5pcc" ] && CC_OF_HDF5=$("$HDF5_DIR/bin/h5pcc" -show | cut -d' ' -f1)
fi
if [ -z "$INC" ] && command -v h5pcc >/dev/null; then
  SHOWN=$(h5pcc -show)
  PREFIX=$(dirname "$(dirname "$(readlink -f "$(command -v h5pcc)")")")
  inc=$(flags -I <<<"$SHOWN") lib=$(flags -L <<<"$SHOWN")
  take "${inc:-$PREFIX/include}" "${lib:-$PREFIX/lib}" h5pcc
  [ "$FOUND" = h5pcc ] && CC_OF_HDF5=${SHOWN%% *}
fi
if [ -z "$INC" ] && command -v pkg-config >/dev/null; then
  for name in hdf5-mpich hdf5-openmpi hdf5-mpi hdf5; do
    pkg-config --exists "$name" 2>/dev/null || continue
    for inc in $(pkg-config --cflags-only-I "$name" | tr ' ' '\n' | sed -n 's/^-I//p'); do
      take "$inc" "$(pkg-config --libs-only-L "$name" | flags -L)" "pkg-config $name"
    done
    if [ -z "$CC_OF_HDF5" ] && [ "$FOUND" = "pkg-config $name" ]; then
      case $name in hdf5-mpich) CC_OF_HDF5=mpicc.mpich ;; hdf5-openmpi) CC_OF_HDF5=mpicc.openmpi ;; esac
    fi
  done
fi
[ -n "$INC" ] || fail "no parallel HDF5 was found: install one (apt-get install libhdf5-mpich-dev mpich, or a module hdf5-parallel), or set HDF5_DIR"

MPICC=${MPICC:-${CC_OF_HDF5:-mpicc}}
command -v "$MPICC" >/dev/null || MPICC=mpicc
command -v "$MPICC" >/dev/null || fail "no $MPICC on PATH; set MPICC to the compiler of the MPI that $INC was built with"
MPICC=$(command -v "$MPICC")
suffix=${MPICC##*/mpicc}
MPIEXEC=${MPIEXEC:-${MPICC%/*}/mpiexec$suffix}
[ -x "$MPIEXEC" ] || MPIEXEC=$(command -v mpiexec) || fail "no mpiexec beside $MPICC; set MPIEXEC"

KEY=$({ "$MPICC" -show 2>/dev/null; cat "$INC"/H5pubconf*.h; echo "$LIB $H5PY"; } | cksum | cut -d' ' -f1)
CACHE=${DLIO_TORCH_WHEELS:-$HOME/.cache/dlio_torch/wheels}/parallel-h5py-$H5PY-$KEY
wheel() { ls "$CACHE/$1-"*"-$TAG-"*.whl 2>/dev/null | head -n 1; }

if [ -z "$(wheel h5py)" ] || [ -z "$(wheel mpi4py)" ]; then
  { command -v cc || command -v gcc; } >/dev/null || fail "no C compiler on PATH; install gcc"
  WORK=$(mktemp -d)
  trap 'rm -rf "$WORK"' EXIT
  echo "install_parallel_h5py: building h5py $H5PY for the parallel HDF5 of $FOUND ($LIB) and mpi4py for $MPICC" >&2
  export MPICC CC="$MPICC" HDF5_MPI=ON HDF5_INCLUDEDIR="$INC" HDF5_LIBDIR="$LIB"
  unset HDF5_DIR HDF5_PKGCONFIG_NAME
  # In an environment of its own: one that holds an MPI (pip install mpich) has that one's mpi.h on the way of
  # every compilation. --no-cache-dir: pip's own cache of wheels does not know which MPI one was built for.
  "$PY" -m venv "$WORK/env"
  build() { "$WORK/env/bin/python" -m pip --disable-pip-version-check "$@"; }
  numpy=$("$PY" -c 'import numpy; print(numpy.__version__)')
  build install -q "setuptools>=77.0.1" wheel "Cython>=3,<4" "pkgconfig>=1.5.5" packaging "numpy==$numpy"
  build wheel -q --no-cache-dir --no-deps --no-build-isolation --no-binary mpi4py \
      -w "$WORK/wheel" "mpi4py${MPI4PY:+==$MPI4PY}" || fail "mpi4py could not be built; its messages are above"
  build install -q --no-deps "$WORK"/wheel/mpi4py-*.whl  # h5py compiles against its headers
  build wheel -q --no-cache-dir --no-deps --no-build-isolation --no-binary h5py \
      -w "$WORK/wheel" "h5py==$H5PY" || fail "h5py could not be built; its messages are above"
  # Copied beside, then renamed: an interrupted call leaves no half wheel in the cache.
  mkdir -p "$CACHE"
  for built in "$WORK"/wheel/mpi4py-*.whl "$WORK"/wheel/h5py-*.whl; do
    cp "$built" "$CACHE/.${built##*/}.$$"
    mv "$CACHE/.${built##*/}.$$" "$CACHE/${built##*/}"
  done
fi

# By force: pip leaves packages of these versions alone, whatever they were built with.
pip install -q --no-deps --force-reinstall "$(wheel mpi4py)" "$(wheel h5py)"

CHECK=$(mktemp -d)
trap 'rm -rf "${WORK:-}" "$CHECK"' EXIT
cat > "$CHECK/check.py" <<'P'
import sys

import h5py
import numpy as np
from mpi4py import MPI

world, path = MPI.COMM_WORLD, sys.argv[1]
if not h5py.get_config().mpi:
    sys.exit("install_parallel_h5py: the installed h5py has no MPI")
if world.size != 2:
    sys.exit(f"install_parallel_h5py: {world.size} rank instead of 2: this mpiexec is another MPI's than mpi4py's")
if world.rank == 0:
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(1000)
world.Barrier()
with h5py.File(path, "r", driver="mpio", comm=world) as file:
    array = file["x"]
    with array.collective:
        mine = array[world.rank * 500 : (world.rank + 1) * 500]
total = world.allreduce(int(mine.sum()))
if total != 499500:
    sys.exit(f"install_parallel_h5py: two ranks read {total} together, expected 499500")
if world.rank == 0:
    print("h5py", h5py.__version__, "with parallel HDF5", h5py.version.hdf5_version, "over", MPI.get_vendor()[0],
          "; two ranks read together")
P
# Open MPI asks for this in containers and on machines of one core.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
"$MPIEXEC" -n 2 "$PY" "$CHECK/check.py" "$CHECK/check.h5" ||
  fail "the installed h5py does not work with $MPIEXEC; remove $CACHE and try again"
echo "start ranks with: $MPIEXEC -n <ranks> $PY -m dlio_torch dist.backend=mpi ..."
