"""Runs one rank below mpiexec and keeps what becomes of it: ``python rank_keeper.py <folder> <program> [arguments]``.

mpiexec shows neither a rank's own exit code nor its own output, and kills the others as soon as one fails, so the
rank runs in a session of its own.  Left behind are ``<rank>.out``, ``.err``, ``.pid`` and ``.code``.
"""

import os
import subprocess
import sys

folder, *command = sys.argv[1:]
kept = os.path.join(folder, os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])
keeper = os.fork()
if keeper:
    os.waitpid(keeper, 0)
    os._exit(0)
os.setsid()
with open(kept + ".out", "wb") as out, open(kept + ".err", "wb") as err:
    # MPI's connection to mpiexec is an open file that the rank inherits.
    rank = subprocess.Popen(command, stdout=out, stderr=err, close_fds=False, start_new_session=True)
    with open(kept + ".pid", "w") as file:
        file.write(str(rank.pid))
    code = rank.wait()
with open(kept + ".part", "w") as file:
    file.write(str(code))
os.rename(kept + ".part", kept + ".code")
