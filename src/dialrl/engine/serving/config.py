"""Settings of ``dialrl serve``. Light to import."""

from typing import Any, Literal

from dialrl.config import StageConfig, operational, semantic


class ServeConfig(StageConfig):
    """How a model of this machine is served."""

    port: int = operational(
        8000, help="Port on the loopback interface; 0: a free one, which is printed.", ge=0, le=65535
    )
    name: str | None = operational(None, help="What the model is called; none: its directory's name.")
    device: str = operational("cpu", help="Where it runs: cpu, cuda.")
    precision: Literal["float32", "bfloat16", "float16"] = semantic("float32", help="Precision of the weights.")
    template_options: dict[str, Any] = semantic(
        {}, help="Variables of the chat template, or another chat_template, where a request brings none."
    )
    batch: int = operational(16, help="Requests answered together at most.", ge=1)
