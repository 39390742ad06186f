"""The server's endpoints: what they answer, what they refuse, and that they live on."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
from helpers.explore_server import png_header, send, serving
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_lens import tiny_lens

from caption.analysis.explorer.explorer import Explorer
from caption.analysis.explorer.requests import check
from caption.analysis.explorer.service import Service
from caption.captioner import Captioner
from caption.cli.serve import _bound, _hosts
from caption.models.model_zoo import load
from caption.visualize.page_script import page_description


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


FORCE = {"kind": "force", "steps": [1], "cells": [[0, 0]]}
MAP = {"kind": "force", "steps": [1]}


@pytest.fixture(scope="module")
def port():
    service = Service({"one": captioner(), "two": captioner()}, kept_photos=3)
    with serving(service, largest_photo=100_000) as port:
        yield port


def opened(port, seed=0):
    status, answer = send(port, "/api/photos?name=noise.png", png(photo(seed=seed)))
    assert status == 200
    return answer


def test_a_photo_is_opened_changed_and_described_as_the_description_says(port):
    answer = opened(port)
    check(answer, "Opened")
    assert [record["model"] for record in answer["photos"]] == ["one", "two"]
    assert answer["photos"][0]["name"] == "noise.png"
    request = {"photo": answer["photo"], "model": "two", "changes": [FORCE], "search": {"kind": "greedy"}}
    check(request, "Request")
    status, changed = send(port, "/api/captions", request)
    assert status == 200
    check(changed, "Photo")
    assert changed["change"]["requests"] == [FORCE]
    assert changed["model"] == "two"
    description = send(port, "/api/openapi.json")[1]
    assert description["openapi"] == "3.1.0"
    assert set(description["paths"]) == {"/api/photos", "/api/captions"}
    assert description["components"] == page_description()["components"]
    page = send(port, "/")[1]["text"]
    assert "connect-src 'self'" in page
    assert "src=" not in page.partition("<script")[0]


def test_what_a_lens_reads_is_described_and_asked_for():
    model = captioner()
    model.lens = tiny_lens()
    with serving(Service({"": model})) as port:
        answer = opened(port)
        check(answer, "Opened")
        noun = answer["photos"][0]["captions"][0]["lens"]["things"][0][0]
        request = {"photo": answer["photo"], "changes": [{"kind": "force", "steps": [1], "thing": noun}]}
        check(request, "Request")
        status, changed = send(port, "/api/captions", request)
        assert status == 200
        check(changed, "Photo")
        assert changed["captions"][0]["lens"]["words"][1][0][0] == noun
        request["changes"][0]["thing"] = "zebra\n" * 1000
        status, refused = send(port, "/api/captions", request)
        assert status == 400
        assert refused["error"].startswith("the lens does not know 'zebra")
        assert len(refused["error"]) < 300


def test_the_question_to_a_model_is_in_its_record_and_on_the_saved_page():
    model = captioner()
    assert Explorer(model, photo()).record()["question"] == ""
    model.decoder.model = SimpleNamespace(question="What is left?")
    explorer = Explorer(model, photo(), model="two")
    record = json.loads(json.dumps(explorer.record()))
    check(record, "Photo")
    assert record["question"] == "What is left?"
    assert "two, “What is left?”, as it is" in explorer.to_html()


def test_what_makes_no_sense_is_refused_with_a_sentence(port):
    known = opened(port)["photo"]
    photos = [
        (b"", "no photo has arrived", 400),
        (b"hello", "'x.png' is not an image", 400),
        (png(photo())[:200], "truncated or damaged", 400),
        (png_header(10_000, 10_000), "has 100 megapixels; at most 40", 400),
        (png_header(60_000, 60_000), "is too large", 400),
        (bytes(200_000), "More than 0.1 MB were sent", 413),
    ]
    requests = [
        (b"{", "not JSON", 400),
        (b"[" * 100_000, "not JSON", 400),
        ({"photo": "x"}, "not in memory any more", 404),
        ({"photo": known, "model": "three"}, "there is no model 'three'", 400),
        ({"photo": known, "changes": [FORCE | {"cells": [[10**400, 0]]}]}, "a whole number of", 400),
        (
            {"photo": known, "changes": [FORCE | {"cells": [[0, 0]] * 100_000}]},
            "a list of 1 to 4096 cells",
            400,
        ),
        ({"photo": known, "changes": [FORCE | {"steps": [1] * 2000}]}, "at most 1000 whole numbers", 400),
        ({"photo": known, "changes": [MAP | {"map": [[0] * 500] * 9}]}, "at most 256 numbers", 400),
        ({"photo": known, "changes": [MAP | {"map": [[0]] * 500}]}, "at most 256 rows", 400),
        ({"photo": known, "model": "\ud800"}, "not Unicode", 400),
        (b" " * 2_000_000, "MB were sent", 413),
    ]
    for path, cases in (("/api/photos?name=x.png", photos), ("/api/captions", requests)):
        for body, reason, status in cases:
            found, answer = send(port, path, body)
            assert (found, reason in answer["error"]) == (status, True), answer
    assert send(port, "/api/nothing")[0] == 404
    assert send(port, f"/api/example?number={'9' * 5000}")[0] == 200
    assert send(port, "/api/captions", {"photo": known, "changes": [FORCE]})[0] == 200


def test_another_website_cannot_ask(port):
    body = {"photo": opened(port)["photo"]}
    for origin in ("https://evil.example", "http://[bad", "null"):
        status, answer = send(port, "/api/captions", body, Origin=origin)
        assert (status, answer["error"]) == (403, "Only this server's own page may send requests.")
    assert send(port, "/api/captions", body, Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert send(port, "/", Host="evil.example")[0] == 400


EVERYWHERE = ("0.0.0.0", "::", "::ffff:0.0.0.0")
HERE = ("127.0.0.2", "127.1", "LOCALHOST", "::1", "::ffff:127.0.0.1", "::ffff:127.0.0.2")


@pytest.mark.parametrize("host", [*HERE, *EVERYWHERE])
def test_names_of_this_computer_keep_other_names_out(host):
    with closing(_bound(host, 0)) as sock:
        allowed = _hosts(sock)
        assert ("*" in allowed) == (host in EVERYWHERE)
        address = sock.getsockname()[0]
        assert "*" in allowed or {address, f"[{address}]"} & set(allowed)


def test_a_browser_writes_an_address_of_ipv4_in_hexadecimal():
    with closing(_bound("::ffff:127.0.0.1", 0)) as sock:
        assert "[::ffff:7f00:1]" in _hosts(sock)


def test_a_map_of_the_largest_numbers_is_a_map(port):
    answer = opened(port)
    rows, columns = answer["photos"][0]["captions"][0]["grid"]
    forced = [
        send(
            port,
            "/api/captions",
            {"photo": answer["photo"], "changes": [MAP | {"map": [[number] * columns] * rows}]},
        )
        for number in (1, 1e308)
    ]
    (_, ones), (status, largest) = forced
    assert status == 200
    assert largest["captions"] == ones["captions"]


def test_the_check_of_a_request_can_be_stopped():
    class Left(Exception):
        pass

    def watch():
        raise Left

    with pytest.raises(Left):
        check([FORCE], "Changes", watch)


def test_there_are_photos_to_begin_with_and_scenes_for_models_of_scenes():
    photos, scenes = Service({"": captioner()}), Service({"": load("shapes")})
    assert photos.add(photos.example(1), "example")["photos"][0]["size"] == (512, 512)
    for service, number in ((photos, 4), (scenes, 6)):
        assert len(service.examples) == len({service.example(place) for place in range(number)}) == number
        assert all(example["preview"].startswith("data:image/jpeg;") for example in service.examples)
        assert service.example(number) == service.example(0)


def test_photos_of_many_pixels_are_forgotten_sooner(monkeypatch):
    service = Service({"one": captioner()})
    monkeypatch.setattr("caption.analysis.explorer.service.MOST_PIXELS", 2 * 80 * 40)
    photos = [service.add(png(photo(80, 40)), "x.png")["photo"] for _ in range(4)]
    assert [*service._photos] == photos[2:]


def test_the_photo_that_was_used_longest_ago_is_forgotten(port):
    first, second = opened(port)["photo"], opened(port)["photo"]
    send(port, "/api/captions", {"photo": first})
    for seed in range(2):
        opened(port, seed)
    assert send(port, "/api/captions", {"photo": second})[0] == 404
    assert send(port, "/api/captions", {"photo": first})[0] == 200


def held(model: Captioner) -> tuple[threading.Event, threading.Event, list[int]]:
    """Hold a model's steps: an event that the first of them sets, one for which all wait, and a list of those done."""
    entered, go_on, steps = threading.Event(), threading.Event(), []
    step = model.decoder.step

    def slow(state, words):
        entered.set()
        go_on.wait(10)
        steps.append(1)
        return step(state, words)

    model.decoder.step = slow
    return entered, go_on, steps


def test_a_server_that_stops_answers_those_who_wait():
    model, statuses = captioner(), []
    entered, go_on, steps = held(model)
    askers = [
        threading.Thread(target=lambda: statuses.append(send(port, "/api/photos", png(photo()))[0]))
        for _ in range(4)
    ]
    with serving(Service({"one": model})) as port:
        for asker in askers:
            asker.start()
        assert entered.wait(10)
        time.sleep(0.3)  # the others wait
    for asker in askers:
        asker.join(10)
    assert statuses == [499] * 4
    go_on.set()
    time.sleep(0.3)
    assert len(steps) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_command_serves_until_it_is_stopped(number: signal.Signals):
    command = [sys.executable, "-m", "caption", "serve", "--model", "shapes", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        try:
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), process.stderr.read()
            assert opened(int(address.rstrip("/").rpartition(":")[2]))
        finally:
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert re.fullmatch(r"caption: stopped( by SIG\w+)?\n", errors)


@pytest.mark.nightly
def test_a_hundred_requests_at_once_are_answered_or_told_to_come_back(port):
    body, statuses = png(photo()), []
    asking = [
        threading.Thread(target=lambda: statuses.append(send(port, "/api/photos", body)[0]))
        for _ in range(100)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert len(statuses) == 100
    assert set(statuses) <= {200, 503}
    assert statuses.count(200) >= 9
    assert opened(port)["photo"]


def test_work_for_an_asker_who_has_left_stops_and_its_place_is_free_again():
    model = captioner()
    service = Service({"one": model})
    answer = service.add(png(photo()), "noise.png")
    step = model.decoder.step
    entered, go_on, steps = held(model)
    with serving(service, waiting=0) as port:
        body = b'{"photo": "%s", "search": {"kind": "greedy"}}' % answer["photo"].encode()
        asker = socket.create_connection(("127.0.0.1", port))
        head = f"POST /api/captions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        asker.sendall(head.encode() + body)
        assert entered.wait(10)
        status, refused = send(port, "/api/captions", {"photo": answer["photo"]})
        assert (status, "try again" in refused["error"]) == (503, True)
        asker.close()
        time.sleep(0.3)  # the server notices
        go_on.set()
        model.decoder.step = step
        deadline = time.monotonic() + 5
        while send(port, "/api/captions", {"photo": answer["photo"]})[0] != 200:
            assert time.monotonic() < deadline, "the place is never free again"
            time.sleep(0.05)
    assert len(steps) == 1
