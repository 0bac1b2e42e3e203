"""Ports of the services for tests: several checkouts of one machine do not disturb one another."""

from __future__ import annotations

import socket
from contextlib import closing

from services import SCRIPT


def test_ports_of_another_program_are_not_used() -> None:
    port = SCRIPT.choose_port()
    assert port < 32_768  # Linux gives clients ports from there on
    entry = {"port": port}
    assert SCRIPT.can_continue(entry, "port")
    assert not SCRIPT.can_continue(None, "port")
    assert not SCRIPT.can_continue(entry, "port", "guarded")
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        assert not SCRIPT.can_continue(entry, "port")
        assert SCRIPT.answers(port)
        assert not SCRIPT.is_own({"pid": 1, "since": "never", "port": port})


def test_folders_and_states_belong_to_a_checkout() -> None:
    assert SCRIPT.STATE.is_relative_to(SCRIPT.ROOT / "build")
    assert SCRIPT.STATE.parent == SCRIPT.FOLDER
