"""The wire: an OpenAI-compatible HTTP server on the loopback interface, by the standard library.

``/v1/models``, ``/v1/chat/completions`` (JSON schema, tools), ``/v1/completions`` (token ids in and out, log-probs). It
listens on this machine only, takes JSON only, and knows no keys. Not here: the model.
"""

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dialrl.engine.serving.answers import chat_answer, completion_answer
from dialrl.engine.serving.asked import (
    Asked,
    BadRequestError,
    messages_of,
    refuse_unknown_ways,
    rendered,
    sampling_of,
    schema_of,
    seed_of,
    stops_of,
    template_options,
    with_tools,
)
from dialrl.engine.serving.batching import Batching
from dialrl.engine.serving.model import ServedModel
from dialrl.errors import UsageError

HOST = "127.0.0.1"
_LARGEST_BODY = 16 * 2**20
_QUEUE = 256


class UnknownModelError(BadRequestError):
    """A request for a model that is not served here."""


class Service:
    """Requests to answers, whatever the wire. ``names``: what the model may be called; the first is its own."""

    def __init__(self, model: ServedModel, names: tuple[str, ...], most: int = 16) -> None:
        self._model, self.names = model, names
        self._batching = Batching(model, most)

    def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in self.names]}

    def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A chat completion. Raises BadRequestError."""
        self._check(body)
        template = self._model.template(template_options(body, self._model.template_options))
        messages, tools = messages_of(body), body.get("tools") or ()
        schema = schema_of(body)
        if tools:
            messages = with_tools(messages, tools)
        asked = Asked(
            rendered(template, messages),
            sampling_of(body),
            seed_of(body),
            template,
            schema,
            bool(tools),
            stops_of(body),
        )
        return chat_answer(self.names[0], asked, self._batching.ask(asked), template)

    def completion(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion of a text, or of token ids. Raises BadRequestError."""
        self._check(body)
        template = self._model.template(self._model.template_options)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = list(self._model.tokenizer.encode(prompt))
        elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
            ids = prompt
        else:
            raise BadRequestError("prompt: expected a text or a list of token ids")
        asked = Asked(ids, sampling_of(body), seed_of(body), template, schema_of(body), stops=stops_of(body))
        return completion_answer(self.names[0], asked, self._batching.ask(asked), template, dict(body))

    def close(self) -> None:
        self._batching.close()

    def _check(self, body: Mapping[str, Any]) -> None:
        refuse_unknown_ways(body)
        if body.get("model") not in self.names:
            raise UnknownModelError(f"model {body.get('model')!r} is not served here; known: {', '.join(self.names)}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "ModelServer"

    def do_GET(self) -> None:
        if self.path.rstrip("/") in ("/v1/models", "/health"):
            self._send(200, self.server.service.models())
        else:
            self._refuse(404, f"there is no {self.path}")

    def do_POST(self) -> None:
        ways = {"/v1/chat/completions": self.server.service.chat, "/v1/completions": self.server.service.completion}
        answer = ways.get(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST_BODY:
            self.close_connection = True
            return self._refuse(413, f"the body has {length} bytes; at most {_LARGEST_BODY} are taken")
        content = self.rfile.read(length)
        if answer is None:
            return self._refuse(404, f"there is no {self.path}")
        # A page in a browser may send forms to this address, but no JSON without asking first.
        if not (self.headers.get("Content-Type") or "").startswith("application/json"):
            return self._refuse(415, "expected Content-Type: application/json")
        try:
            body = json.loads(content)
            if not isinstance(body, dict):
                raise BadRequestError("the body is no JSON object")
            self._send(200, answer(body))
        except UnknownModelError as error:
            self._refuse(404, str(error))
        except (BadRequestError, UsageError, ValueError, TypeError) as error:
            self._refuse(400, str(error))
        except Exception as error:  # noqa: BLE001 - a failed answer is the client's to see; the server goes on
            self._refuse(500, f"{type(error).__name__}: {error}")
        return None

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message}})

    def _send(self, status: int, content: Mapping[str, Any]) -> None:
        data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # whoever asked has given up

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: requests hold dialogues."""


class ModelServer(ThreadingHTTPServer):
    """Serves ``service`` at ``url`` until closed. ``port`` 0: a free one. Raises OSError for a port that is taken."""

    daemon_threads = True
    request_queue_size = _QUEUE

    def __init__(self, service: Service, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.service = service
        self.url = f"http://{HOST}:{self.server_address[1]}/v1"

    def start(self) -> "ModelServer":
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve_forever, name="dialrl-server", daemon=True).start()
        return self

    def stop(self) -> None:
        """Stop listening, and end the model's thread."""
        self.shutdown()
        self.server_close()
        self.service.close()
