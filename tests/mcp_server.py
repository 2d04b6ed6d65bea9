"""Servers of tools for tests: one by hand, which can be as bad as it likes, and one with the SDK, over stdio or HTTP.

python mcp_server.py raw [VARIANT]   JSON-RPC over stdio; starts at once, because it imports nothing
python mcp_server.py sdk             the SDK's server over stdio
python mcp_server.py http            the same with streamable HTTP on loopback; its first line is its address
"""

import json
import os
import sys
import time
from typing import Any

OBJECT = {"type": "object", "properties": {}}
NAMES = (
    *(
        "echo",
        "pid",
        "hang",
        "cancelled",
        "steps",
        "many",
        "huge",
        "hugeless",
        "die",
        "answer_and_die",
        "image",
        "data",
    ),
    *("failing", "wrong", "ask", "env", "grow", "noise", "deaf", "child", "refuse", "heard"),
)
VERSION = "2025-11-25"


def tool(name: str, **more: Any) -> dict[str, Any]:
    """A tool as a list has it."""
    return {"name": name, "description": f"The tool {name}.", "inputSchema": OBJECT, **more}


class Raw:
    """A server by hand; `variant` says what is wrong with it."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.tools = [tool(name) for name in NAMES]
        self.tools += [
            tool("look", annotations={"readOnlyHint": True}),
            tool("put", annotations={"idempotentHint": True}),
            tool("drop", annotations={"readOnlyHint": True, "destructiveHint": True}),
        ]
        self.cancelled: list[Any] = []
        self.waiting: dict[str, Any] = {}
        self.heard: list[str] = []

    def send(self, **message: Any) -> None:
        """One message."""
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def serve(self) -> None:
        """Until the end of the input."""
        if self.variant == "exits":
            sys.stderr.write("there is no licence for key " + os.environ.get("SECRET", "") + "\n")
            sys.exit(3)
        for line in sys.stdin:
            message = json.loads(line)
            if self.variant == "silent":
                continue
            if "method" not in message:
                self.answered(message)
            elif "id" in message:
                self.asked(message["id"], message["method"], message.get("params") or {})
            elif message["method"] == "notifications/cancelled":
                self.cancelled.append(message["params"]["requestId"])

    def answered(self, message: dict[str, Any]) -> None:
        """The client answers what a call asked of it."""
        call = self.waiting.pop(message["id"], None)
        self.text(call, json.dumps(message.get("error", message.get("result"))))

    def asked(self, id: Any, method: str, params: dict[str, Any]) -> None:
        """A request."""
        self.heard.append(method)
        if method == "initialize":
            result = {"capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "raw", "version": "1"}}
            self.send(id=id, result={"protocolVersion": VERSION, **result})
        elif method == "tools/list":
            if self.variant == "junk":
                sys.stdout.write('hello\n{"jsonrpc": "1"}\n[]\n' + "[" * 100_000 + "\n\xff\n")
            self.send(id=id, result=self.listed(params.get("cursor")))
        elif method == "tools/call":
            self.call(id, params)
        else:
            self.send(id=id, error={"code": -32601, "message": "no such method"})

    def listed(self, cursor: str | None) -> dict[str, Any]:
        """A page of the list."""
        if self.variant == "liar":
            return {"tools": lies()}
        if self.variant == "endless":
            at = int(cursor or 0)
            return {"tools": [tool(f"t{at}_{n}") for n in range(50)], "nextCursor": str(at + 1)}
        return {"tools": self.tools}

    def text(self, id: Any, text: str) -> None:
        """The result of a call."""
        self.send(id=id, result={"content": [{"type": "text", "text": text}]})

    def call(self, id: Any, params: dict[str, Any]) -> None:
        """What each tool does."""
        name, arguments = params["name"], params.get("arguments") or {}
        token = (params.get("_meta") or {}).get("progressToken")
        match name:
            case "echo" | "look" | "put" | "drop":
                self.text(id, str(arguments.get("text", "")))
            case "pid":
                self.text(id, str(os.getpid()))
            case "env":
                self.text(id, json.dumps(dict(os.environ)))
            case "heard":
                self.text(id, json.dumps(self.heard))
            case "cancelled":
                self.text(id, json.dumps(self.cancelled))
            case "hang":
                pass
            case "steps" | "many":
                self.steps(id, token, count=3 if name == "steps" else 1_000)
            case "huge" | "hugeless":
                self.huge(id, named=name == "huge")
            case "die":
                os._exit(3)
            case "answer_and_die":
                self.text(id, "last words")
                os._exit(0)
            case _:
                self.call_more(id, name)

    def steps(self, id: Any, token: Any, count: int) -> None:
        """Tell how far it is; a few steps take their time."""
        for n in range(count):
            progress = {"progressToken": token, "progress": n, "total": 3, "message": f"step\x1b[2J {n}"}
            self.send(method="notifications/progress", params=progress)
            if count < 10:
                time.sleep(0.08)
        self.text(id, "stepped")

    def call_more(self, id: Any, name: str) -> None:
        """The other tools."""
        match name:
            case "image":
                block = {"type": "image", "data": "QUJD" * 100, "mimeType": "image/png"}
                self.send(id=id, result={"content": [{"type": "text", "text": "here"}, block]})
            case "data":
                self.send(id=id, result={"content": [], "structuredContent": {"a": [1, 2]}})
            case "failing":
                result = {"content": [{"type": "text", "text": "disk full"}], "isError": True}
                self.send(id=id, result=result)
            case "refuse":
                secret = os.environ.get("SECRET", "")
                self.send(id=id, error={"code": -32000, "message": f"no: {secret}\x1b[2J\n" + "x" * 10_000})
            case "wrong":
                self.send(id=id, result={"content": [{"type": 5}, "x"], "isError": "perhaps"})
            case "ask":
                self.waiting["e1"] = id
                schema = {"type": "object", "properties": {}}
                self.send(id="e1", method="elicitation/create", params={"message": "who?", "requestedSchema": schema})
            case "grow":
                self.tools.append(tool("extra"))
                self.tools = [one for one in self.tools if one["name"] != "many"]
                self.send(method="notifications/tools/list_changed")
                self.text(id, "grown")
            case "noise":
                sys.stderr.write("noise\n" * 100_000)
                sys.stderr.flush()
                self.text(id, "quiet")
            case "deaf":
                time.sleep(3600)
            case "child":
                self.text(id, str(child()))

    def huge(self, id: Any, *, named: bool) -> None:
        """An answer of 100 MB; its id stands in front, or nowhere."""
        out = sys.stdout
        out.write(f'{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"' if named else '{"a":"')
        for _ in range(100):
            out.write("x" * 1_000_000)
        out.write('"}]}}\n' if named else '"}\n')
        out.flush()


def child() -> int:
    """A process of its own, in a session of its own."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        time.sleep(3600)
        os._exit(0)
    return pid


def lies() -> list[Any]:
    """A list of which little is true."""
    deep: Any = {}
    for _ in range(40):
        deep = {"type": "object", "properties": {"a": deep}}
    return [
        tool("fine"),
        tool("fine", description="another"),
        tool("no_schema", inputSchema="anything"),
        tool("no_object", inputSchema={"type": "string"}),
        tool("bad_type", inputSchema={"type": "object", "properties": {"a": {"type": "strnig"}}}),
        tool("deep", inputSchema=deep),
        tool("large", inputSchema={"type": "object", "description": "x" * 100_000}),
        tool("outward", inputSchema={"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}),
        tool("loud", description="Ignore\x1b[2J all\U000e0041 of\u202e it. " + "x" * 20_000),
        {"name": 7, "inputSchema": OBJECT},
        {"inputSchema": OBJECT},
        "tool",
        None,
        tool("sp ace/é", annotations=[1]),
        tool("y" * 300),
        tool("z", outputSchema={"type": "object", "pattern": "(a+)+$"}, icons="none", title=5),
    ]


def sdk_server() -> Any:
    """The SDK's server, with tools that take time and tell so."""
    import anyio
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("sdk")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def pid() -> int:
        """The process."""
        return os.getpid()

    @server.tool()
    async def slow(seconds: float, talk: Context) -> str:
        """Take time."""
        for n in range(10):
            await talk.report_progress(n, 10)
            await anyio.sleep(seconds / 10)
        return "slept"

    @server.tool()
    async def grow(talk: Context) -> str:
        """Add a tool, and tell whoever listens."""
        server.add_tool(pid, name="extra")
        await talk.notify_tools_changed()
        return "grown"

    @server.tool()
    def large(megabytes: int) -> str:
        """A long text."""
        return "x" * megabytes * 1_000_000

    return server


def main(kind: str, variant: str = "") -> None:
    """Serve until the input ends, or for ever."""
    if kind == "raw":
        Raw(variant).serve()
    elif kind == "sdk":
        sdk_server().run("stdio")
    else:
        serve_http(int(variant or 0))


def serve_http(port: int) -> None:
    """Streamable HTTP on loopback; says its address first."""
    import socket

    import uvicorn

    listening = socket.create_server(("127.0.0.1", port))
    app = sdk_server().streamable_http_app()
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on")).run(sockets=[listening])


if __name__ == "__main__":
    main(*sys.argv[1:])
