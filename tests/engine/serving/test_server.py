"""Over HTTP, and as the address ``hf:DIRECTORY`` of a run: a tiny random model plays every role at once."""

import json
import threading
import urllib.error
import urllib.request

import pytest
import torch
from tests.toys import CHATML, tiny_policy
from tests.trajectory_files import read

from dialrl.doctor.endpoints import listed_models
from dialrl.endpoint.served import HF_SCHEME, resolved, withdraw
from dialrl.endpoint.settings import EndpointSettings, ModelSettings
from dialrl.engine.openai_probe import gives_token_ids
from dialrl.engine.serving.config import ServeConfig
from dialrl.engine.serving.opening import open_server
from dialrl.errors import UsageError
from dialrl.rollout.config import RolloutConfig
from dialrl.rollout.policy import open_policy
from dialrl.rollout.stage import roll_out


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    torch.set_num_threads(1)
    return tiny_policy(tmp_path_factory.mktemp("tiny"), chat_template=CHATML, max_position_embeddings=4096)


@pytest.fixture(scope="module")
def server(place):
    opened = open_server(place, ServeConfig(port=0, name="tiny")).start()
    yield opened
    opened.stop()


def post(server, path, body, kind="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, headers={"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def chat(**changes):
    return {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, **changes}


def test_it_lists_its_model_and_answers_a_chat(server):
    assert listed_models(server.url, EndpointSettings(base_urls=[server.url])) == ["tiny"]
    status, answer = post(server, "/chat/completions", chat(seed=1))
    assert status == 200
    assert answer["choices"][0]["finish_reason"] in ("stop", "length")
    assert answer["usage"]["completion_tokens"] <= 4


def test_equal_seeds_give_equal_answers_and_requests_are_answered_side_by_side(server):
    answers = {}

    def ask(number):
        answers[number] = post(server, "/chat/completions", chat(seed=number % 2))[1]["choices"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answers[number] == answers[number % 2] for number in range(8))


def test_a_policy_behind_it_can_be_trained_on(server):
    assert gives_token_ids(ModelSettings(model="tiny"), EndpointSettings(base_urls=[server.url]))


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chat/completions", chat(model="other"), 404),
        ("/chat/completions", chat(messages=[]), 400),
        ("/chat/completions", chat(stream=True), 400),
        ("/chat/completions", chat(chat_template="plane"), 400),
        ("/chat/completions", b"[]", 400),
        ("/chat/completions", b"{", 400),
        ("/completions", {"model": "tiny", "prompt": [10**7]}, 400),
        ("/nowhere", {}, 404),
    ],
)
def test_what_cannot_be_answered_says_why(server, path, body, status):
    found, answer = post(server, path, body)
    assert found == status
    assert answer["error"]["message"]


def test_a_form_of_a_web_page_is_refused(server):
    assert post(server, "/chat/completions", chat(), kind="text/plain")[0] == 415


def test_a_port_that_is_taken_is_a_wrong_use(server, place):
    taken = int(server.url.split(":")[2].split("/")[0])
    with pytest.raises(UsageError, match="cannot be used"):
        open_server(place, ServeConfig(port=taken))


def test_a_run_loads_the_model_its_address_names_once_for_all_roles(place, tmp_path):
    address = f"{HF_SCHEME}{place}"
    role = {"model": place.name, "max_tokens": 4}
    config = RolloutConfig(
        environment="support",
        environment_options={"actor": role, "director": role, "languages": ["en"], "turn_limit": 2},
        groups=1,
        samples=2,
        max_reply_tokens=4,
        grading="live",
        judge="rubric",
        judge_options={"model": place.name, "max_tokens": 8, "prompts": None},
        endpoints={"default": {"base_urls": [address], "timeout_seconds": 120}},
        max_failed=1.0,
        cache=False,
    )
    with pytest.raises(UsageError, match="dialrl serve"):
        resolved(address)
    roll_out(open_policy(place), tmp_path / "r.parquet", config)
    first = resolved(address)
    roll_out(open_policy(place), tmp_path / "s.parquet", config)
    assert resolved(address) == first
    rows = read(tmp_path / "r.parquet")
    assert {row["judge_status"] for row in rows} <= {"missing", "ok"}
    assert all(row["judge_error"] for row in rows if row["judge_status"] == "missing")
    withdraw(str(place))
