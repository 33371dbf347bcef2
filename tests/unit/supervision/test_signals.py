"""Signals: one line and the due code at any time, once, and never by a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import clean_environ

from dlio_torch.supervision.signals import SignalReceived, kind_of, raising

START = """
import signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
# The signal comes while the first module of the command line is being looked for.
IN_THE_IMPORTS = """
import os, runpy
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "dlio_torch.cli":
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder())
sys.argv[1:] = ["recipe=minimal"]
runpy.run_module("dlio_torch", run_name="__main__", alter_sys=True)
"""
# The verb `ls` is replaced by a body that is interrupted.
IN_A_VERB = """
import os, time, types
verb = types.ModuleType("dlio_torch.commands.explain")
sys.modules["dlio_torch.commands.explain"] = verb
def main(command, launch):
    try:
        {body}
    finally:
        {clean_up}
verb.main = main
from dlio_torch import __main__
sys.argv[1:] = ["ls"]
sys.exit(__main__.main())
"""
CODES = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGHUP: (129, "the terminal was closed"),
}


def program(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START + text],
        env={**clean_environ(), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def in_a_verb(body: str, clean_up: str = "pass") -> subprocess.CompletedProcess[str]:
    return program(IN_A_VERB.format(body=body, clean_up=clean_up))


@pytest.mark.parametrize("number", CODES)
def test_a_signal_during_the_imports_is_one_line(number: signal.Signals) -> None:
    done = program(IN_THE_IMPORTS.format(number=int(number)))
    code, word = CODES[number]
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"dlio_torch: {word}\n")


def test_of_several_ranks_the_first_one_speaks() -> None:
    done = program(IN_THE_IMPORTS.format(number=int(signal.SIGINT)), RANK="1", WORLD_SIZE="2")
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize("number", CODES)
def test_a_second_signal_does_not_disturb_the_clean_up(number: signal.Signals) -> None:
    send = f"os.kill(os.getpid(), {int(number)})"
    done = in_a_verb(f"{send}; time.sleep(60)", f"{send}; print('cleaned up')")
    code, word = CODES[number]
    assert (done.returncode, done.stdout, done.stderr) == (code, "cleaned up\n", f"dlio_torch: {word}\n")


def test_a_clean_up_that_hangs_is_ended_by_a_further_signal() -> None:
    late = (
        "import dlio_torch.supervision.signals as signals; signals.CLEANUP_S = -1.0; "
        "os.kill(os.getpid(), signal.SIGINT); time.sleep(60); print('never')"
    )
    done = in_a_verb("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", late)
    assert (done.returncode, done.stdout) == (130, "")


def test_one_that_comes_inside_a_destructor_is_not_lost() -> None:
    body = (
        "exec('class A:\\n def __del__(self):\\n  os.kill(os.getpid(), 15); [None for _ in range(1000)]', globals()); "
        "A(); time.sleep(60); print('never')"
    )
    done = in_a_verb(body)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "dlio_torch: terminated\n")


def test_an_interrupt_inside_text_that_is_evaluated_gives_the_code_too() -> None:
    """Python would end itself by SIGINT where one has passed through exec()."""
    done = in_a_verb("exec('os.kill(os.getpid(), 2); [None for _ in range(1000)]', globals()); time.sleep(60)")
    assert (done.returncode, done.stderr) == (130, "dlio_torch: interrupted\n")


def test_exit_handlers_run_and_a_thread_keeps_nobody() -> None:
    body = (
        "import atexit, threading; atexit.register(lambda: print('at exit')); "
        "threading.Thread(target=time.sleep, args=(60,)).start(); os.kill(os.getpid(), 15); time.sleep(60)"
    )
    done = in_a_verb(body)
    assert (done.returncode, done.stdout) == (143, "at exit\n")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with raising():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        with pytest.raises(SignalReceived) as received, raising():  # noqa: PT012
            os.kill(os.getpid(), signal.SIGINT)
            [None for _ in range(1000)]
        assert kind_of(received.value).exit_code == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_reader_that_leaves_a_long_report_early_is_no_error(tmp_path: Path) -> None:
    text = "print('x' * 1000000, flush=True)"
    done = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" | head -c 1', sys.executable, START + IN_A_VERB.format(body=text, clean_up="pass")],
        env=clean_environ(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("x", "")
