from __future__ import annotations

import os
import signal
import threading

import pytest

from ops.up.stopping import Stop, StopAsked


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_of_the_signals_asks_for_a_stop_however_often_it_comes(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = Stop()
    with stop.listening():
        assert not stop.wait(0)
        for _ in range(3):
            os.kill(os.getpid(), number)
        assert stop.wait(10)
    assert signal.getsignal(number) is before


def test_a_long_step_is_left_at_once() -> None:
    stop = Stop()

    def long_step() -> None:
        with stop.breaking():
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(30)
            pytest.fail("not left")

    with stop.listening(), pytest.raises(StopAsked):
        long_step()
    assert stop.asked


def test_a_long_step_is_not_begun_after_a_stop_was_asked_for() -> None:
    stop = Stop()
    stop.asked = True
    with pytest.raises(StopAsked), stop.breaking():
        pytest.fail("begun")


def test_a_second_signal_does_not_break_what_ends_in_good_order() -> None:
    stop = Stop()
    with stop.listening():
        stop.asked = True
        stop._breaking = True
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(0)
