"""The verbs of the command line: usage, description and examples of each, for its help.

Plain data: ``--help`` reads it without importing anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

COMMON_USAGE = "recipe=NAME|PATH [key=value ...]"
"""Arguments of the verbs that take a recipe and options, and nothing else."""


@dataclass(frozen=True)
class Verb:
    """One verb.

    Attributes:
        summary: one line in the list of verbs.
        usage: its arguments; flags follow them, where it does not say where they stand.
        text: one or two sentences on what it does.
        examples: arguments of one to three commands; one may use the results of those before it.
        options: what it takes beside keys of its own: any option of a run, options of the group ``system``, or none.
    """

    summary: str
    usage: str
    text: str
    examples: tuple[str, ...]
    options: Literal["run", "system", ""] = "run"


VERBS: dict[str, Verb] = {
    "run": Verb(
        "generate the data where they are missing, then train (the default)",
        COMMON_USAGE,
        "Generates the data set where files of it are missing, trains on it with the model emulated, and prints the "
        "figures. The results are in runs/<recipe>/<time>; the verb itself may be left out.",
        (
            "run recipe=minimal",
            "run recipe=cosmic_tagger scale=tiny loader.num_workers=2",
            "run recipe=cosmic_tagger scale=paper --dry-run",
        ),
    ),
    "generate": Verb(
        "write the data set only",
        COMMON_USAGE,
        "Writes the files of the data set that are missing, and nothing else; run and train read them later.",
        ("generate recipe=minimal", "generate recipe=cosmic_tagger dataset.root=data --dry-run"),
    ),
    "train": Verb(
        "train on data that are already there",
        COMMON_USAGE,
        "Trains on data that generate or run has written, or on files of yours, and prints the figures. Missing data "
        "end it with exit code 3.",
        ("generate recipe=minimal", "train recipe=minimal loader.num_workers=2 loader.prefetch_factor=4"),
    ),
    "checkpoint": Verb(
        "save checkpoints and read them back without training",
        "recipe=... [saves=10]",
        "Saves the checkpoints of a recipe one after the other, each flushed to the device, drops them from the page "
        "cache and reads them back on all ranks that save, as MLPerf Storage does. The figures are those of the "
        "slowest rank.",
        (
            "checkpoint recipe=minimal checkpoint=dlio saves=3 loads=3",
            "checkpoint recipe=minimal checkpoint=torch_save checkpoint.keep=2 --dry-run",
        ),
    ),
    "sweep": Verb(
        "run every combination of values and compare",
        "recipe=... key=a,b,c [repeats=3]",
        "Runs every combination of the given values, several times and in turns, and prints a table with the best "
        "first. Differences within the noise of the repeats are called so.",
        (
            "sweep recipe=minimal scale=tiny loader.num_workers=0,2",
            "sweep recipe=minimal loader.num_workers=0..4 train.batch_size=4,8 repeats=5",
        ),
    ),
    "tune": Verb(
        "find the best settings",
        "recipe=... [key=a,b,c] [objective=au]",
        "Searches for the loader settings with the best figure, and confirms the gain by pairs of runs.",
        ("tune recipe=minimal objective=au minutes=5",),
    ),
    "headspace": Verb(
        "what each cost of the loader could gain at the most",
        "recipe=...",
        "Measures how much faster the run would be if one cost of its loader after the other were zero: storage, "
        "decoding, assembly of batches.",
        ("headspace recipe=minimal loader.num_workers=2",),
    ),
    "node": Verb(
        "what this machine can feed, and which of its limits comes first",
        "[recipe=...]",
        "Measures the limits of this machine (storage, decoding, transfer, copies, compute, allreduce), each alone and "
        "all at the same time, and the throughput of a recipe over engines, workers, affinity and pinned memory, and "
        "compares them with the demand of the accelerators. The results are in runs/node/<time>; --output writes a "
        "system file for predict.",
        (
            "node",
            "node recipe=unet3d accelerator=h100 --accelerators 8 --output node.yaml",
        ),
    ),
    "launch": Verb(
        "write a job script for Slurm or PBS",
        "[verb] recipe=... time=1h",
        "Writes a job script that starts the ranks of a run or of saves and loads (checkpoint), or a study, on the "
        "nodes of a cluster; --submit hands it to the scheduler.",
        (
            "launch recipe=minimal scheduler=slurm nodes=2 ranks_per_node=4 time=00:30:00",
            "launch checkpoint recipe=llama3_8b scheduler=slurm nodes=2 time=1h --dry-run",
            "launch sweep recipe=minimal seed=1,2 scheduler=pbs time=2h --dry-run",
        ),
    ),
    "predict": Verb(
        "what a run would do with more ranks on a described storage",
        "RUN system=theta",
        "Simulates a measured run, or a program that the verb trace recorded, with more ranks on a described system, "
        "and prints throughput and utilisation for each number of ranks. It needs the extra scale.",
        (
            "run recipe=minimal scale=tiny trace.posix=true output.dir=runs/mine",
            "predict runs/mine system=theta ranks=1..8192:x2",
        ),
        options="system",
    ),
    "trace": Verb(
        "record every I/O call of any program",
        "[flags] -- CMD ...",
        "Records the I/O calls of a program and its child processes, and what a program with torch asks DataLoader "
        "for; prints figures of the calls, and returns the exit code of the program. The recording is in "
        "runs/trace/<time>, or in the folder that --output names.",
        ("trace --output mine -- python train.py --epochs 1", "report mine"),
        options="",
    ),
    "fit": Verb(
        "turn the recording of a training into a recipe, with a score",
        "REC --output DIR",
        "Finds format, samples, order, loader, step times and checkpoints in a recording of trace, or in a log "
        "of Darshan, DFTracer or strace, and writes a recipe that needs neither the program nor its data. Then it runs "
        "the recipe at the recorded scale and compares its I/O with the recording, the worst component first.",
        ("trace --output rec -- python train.py", "fit rec --output mine", "run recipe=./mine"),
        options="",
    ),
    "inspect": Verb(
        "what your files hold, and the settings that read them",
        "PATH",
        "Says of a file, a folder or a quoted pattern which format it has, the arrays of a sample, their types, "
        "shapes, chunks and compression, and the number of samples; prints the block of a recipe that reads them. "
        "It asks for properties that the files do not state, with the setting to add; exit code 3: not readable.",
        (
            "generate recipe=minimal scale=tiny dataset.root=mine",
            "inspect mine --output mine.yaml",
            "run recipe=./mine.yaml",
        ),
        options="",
    ),
    "report": Verb(
        "one HTML page of a run, a trace or another tool's log",
        "[PATH]",
        "Writes one HTML page that needs no network: the parts of a step, I/O calls, files, and the formula of each "
        "figure. PATH is the folder of a run, study or recording, or a log of strace, DFTracer or Darshan; without it "
        "the newest below output.root=runs is taken.",
        (
            "run recipe=minimal scale=tiny",
            "report",
            "report --output mine.html",
        ),
        options="",
    ),
    "compare": Verb(
        "how alike two runs, traces or logs are, worst component first",
        "A B",
        "Compares the I/O of two runs, recordings or logs component by component, the worst first; 0 means alike.",
        (
            "run recipe=minimal scale=tiny trace.posix=true output.dir=a",
            "run recipe=minimal scale=tiny trace.posix=true access=sequential output.dir=b",
            "compare a b",
        ),
        options="",
    ),
    "ls": Verb(
        "list recipes, fragments, scales, formats",
        "[section ...]",
        "Lists what can be chosen by name: recipes, scales, studies, formats, and the fragments of each group of "
        "options (dataset, loader, access, ...). Without a section it lists all of them.",
        ("ls recipes", "ls dataset scales"),
        options="",
    ),
    "show": Verb(
        "the complete configuration and where each value came from",
        COMMON_USAGE,
        "Prints the complete configuration of a command, each value with the file and line, scale or argument that "
        "set it.",
        ("show recipe=cosmic_tagger", "show recipe=unet3d accelerator=h100 scale=paper"),
    ),
    "explain": Verb(
        "what an option, a figure or a word of the field means",
        "[key] [recipe=...]",
        "Says what an option, a key of a verb or a figure of summary.json means, with its unit and default; with a "
        "recipe also the value there. A part of a name, or a word of the glossary, lists what it may mean; without a "
        "key the groups of options are listed.",
        (
            "explain loader.prefetch_factor",
            "explain loader recipe=cosmic_tagger",
            "explain au",
        ),
    ),
    "doctor": Verb(
        "check this machine and the tool's own overhead",
        "[recipe=...]",
        "Checks versions, folders, limits, timers and storage of this machine, and measures the overhead of the tool "
        "on it; exit code 3 if a run would fail.",
        ("doctor", "doctor recipe=minimal dataset.root=data"),
    ),
    "clean": Verb(
        "remove named runs and studies, or the files of a recipe",
        "PATH ... | recipe=NAME",
        "Lists the named runs, recordings, studies, data sets and kept copies, or the data, runs, studies and copies "
        "that this tool wrote for a recipe, asks, and removes them. Other files stay and are named.",
        (
            "run recipe=minimal scale=tiny output.dir=mine",
            "clean mine --yes",
            "clean recipe=minimal --yes",
        ),
    ),
    "import-dlio": Verb(
        "turn a workload file of DLIO or MLPerf Storage into a recipe",
        "FILE.yaml",
        "Prints a recipe with the same data, access and compute times as a workload file of the DLIO benchmark or of "
        "MLPerf Storage, and lists what could not be honoured.",
        ("import-dlio workload.yaml --output mine.yaml", "run recipe=./mine.yaml scale=tiny"),
        options="",
    ),
}
"""All verbs, in the order of the help."""
