"""The servers that ours is compared with, each started by one command, on a folder of sentence-transformers.

All answer ``{"input": [text]}``; what they answer holds one vector. They run as their documentation shows: FastAPI with
a plain function around ``encode`` (which FastAPI runs in its threads), LitServe with batches, infinity with its own
batching. ``python -m litebert_lab.bench.serving.peers NAME FOLDER PORT``.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

BATCH = 16
_LIT_API: Any = import_module("litserve").LitAPI if find_spec("litserve") else object


def fastapi_server(folder: str, port: int) -> None:
    """sentence-transformers behind FastAPI, as most people write it."""
    import uvicorn
    from fastapi import Body, FastAPI
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    app = FastAPI()

    def embed(content: dict[str, Any] = Body(...)) -> dict[str, Any]:
        vectors = model.encode(content["input"], show_progress_bar=False)
        return {"data": [{"embedding": vector.tolist()} for vector in vectors]}

    app.post("/v1/embeddings")(embed)
    app.get("/health")(lambda: {})
    uvicorn.run(app, port=port, log_level="error", access_log=False)


class Embed(_LIT_API):  # at the top of the file, as LitServe sends it to a process
    """What LitServe asks of a model: each step of a request."""

    folder = ""

    def setup(self, device: str) -> None:
        from sentence_transformers import SentenceTransformer

        self.model = SentenceTransformer(self.folder, device="cpu")

    def decode_request(self, request: dict[str, Any]) -> str:
        return request["input"][0]

    def predict(self, texts: list[str]) -> Any:
        return self.model.encode(texts, show_progress_bar=False)

    def encode_response(self, vector: Any) -> dict[str, Any]:
        return {"data": [{"embedding": vector.tolist()}]}


def litserve_server(folder: str, port: int) -> None:
    """LitServe with its batching."""
    import litserve

    api = Embed(max_batch_size=BATCH, batch_timeout=0.005, api_path="/v1/embeddings")
    api.folder = folder
    litserve.LitServer(api, accelerator="cpu").run(port=port, generate_client_file=False, log_level="error")


def infinity_server(folder: str, port: int) -> None:
    """infinity with torch."""
    import uvicorn
    from infinity_emb import EngineArgs
    from infinity_emb.infinity_server import create_server

    arguments = EngineArgs(
        model_name_or_path=folder,
        engine="torch",
        device="cpu",
        bettertransformer=False,
        compile=False,
        model_warmup=False,
        served_model_name="model",
        batch_size=BATCH,
    )
    app = create_server(engine_args_list=[arguments], url_prefix="/v1")
    uvicorn.run(app, port=port, log_level="error", access_log=False)


PEERS: Mapping[str, tuple[str, Callable[[str, int], None]]] = {
    "fastapi": ("sentence-transformers + FastAPI", fastapi_server),
    "litserve": ("sentence-transformers + LitServe", litserve_server),
    "infinity": ("infinity", infinity_server),
}

if __name__ == "__main__":
    PEERS[sys.argv[1]][1](sys.argv[2], int(sys.argv[3]))
