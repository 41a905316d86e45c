"""Ctrl-C, and the end of a process while another thread is inside a call."""

import subprocess
import sys

import pytest

INSIDE = """
import os, signal, sys, threading, time
import numpy as np
import attune

# A shell has what it starts in the background ignore SIGINT, and Python then leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)

def call(seqlen=64):
    q = np.ones((1, seqlen, 4, 64), "float16")
    return attune.flash_attn_func(q, q, q)

def press_ctrl_c():
    os.killpg(0, signal.SIGINT)

def interrupted(function):
    threading.Timer(float(sys.argv[1]), press_ctrl_c).start()
    try:
        function()
    except BaseException as error:
        return type(error), error.__context__
    return None
"""


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", INSIDE + script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )


@pytest.mark.parametrize("delay", ["0.05", "0.2"])
def test_a_process_ends_while_a_thread_is_inside_a_call(delay):
    done = run(
        """
call()
def go():
    while True:
        call(300)
threading.Thread(target=go, daemon=True).start()
time.sleep(float(sys.argv[1]))
""",
        delay,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_interrupts_a_long_call():
    done = run(
        """
call()
begin = time.monotonic()
assert interrupted(lambda: call(20_000)) == (KeyboardInterrupt, None)
assert time.monotonic() - begin < 10
assert (call() == 1).all()
""",
        "0.1",
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_interrupts_a_compilation(tmp_path):
    done = run(
        f"""
os.environ["ATTUNE_CACHE_DIR"] = {str(tmp_path)!r}
assert interrupted(call) == (KeyboardInterrupt, None)
assert interrupted(lambda: attune.jit(head_dim=128, arch="emulator")) == (KeyboardInterrupt, None)
assert (call() == 1).all()
""",
        "0.1",
    )
    assert done.returncode == 0, done.stderr
