"""Uses Lockkeeper's tools with the official MCP client, over stdio and over HTTP.

Arguments: the program, the repository, and the URL and credential of a running service.
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

PROGRAM, REPOSITORY, HOME, URL, CREDENTIAL = sys.argv[1:6]
TOOLS = {"acquire_lock", "release_lock", "check_locks", "list_locks", "heartbeat", "lock_history"}
TOOLS |= {"feature_check", "allocate_ports"}


def stdio():
    environment = {"LOCKKEEPER_HOME": HOME, "PATH": "/usr/bin:/bin"}
    return StdioServerParameters(command=PROGRAM, args=["mcp"], env=environment, cwd=REPOSITORY)


def http():
    headers = {"Authorization": f"Bearer {CREDENTIAL}"}
    return streamable_http_client(URL + "/mcp", http_client=create_mcp_http_client(headers=headers))


async def tell(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    return result.is_error, result.structured_content, result.content[0].text


async def check_tools(client):
    tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS, tools
    described = json.dumps([tool.model_dump(exclude_none=True, by_alias=True) for tool in tools])
    # About four letters make a token.
    assert len(described) / 4 < 1500, len(described)


async def two_agents_over_stdio(mode):
    async with Client(stdio(), mode=mode) as first, Client(stdio(), mode=mode) as second:
        await check_tools(first)
        error, lock, text = await tell(
            first, "acquire_lock", file_path="src/auth.rs", start_line=10, end_line=50, intention="Adding JWT validation"
        )
        assert not error and lock["success"], (lock, text)
        assert "src/auth.rs:10-50" in text, text
        error, refused, text = await tell(
            second, "acquire_lock", file_path="./src/auth.rs:25-40", intention="Renaming a field"
        )
        assert error and refused["error"] == "busy", refused
        assert refused["conflicts"][0]["intention"] == "Adding JWT validation", refused
        assert "Adding JWT validation" in text, text
        error, checked, _ = await tell(second, "check_locks", file_paths=["src/auth.rs"])
        assert not error and not checked["free"], checked
        error, listed, _ = await tell(second, "list_locks")
        assert not error and listed["total"] == 1, listed
        error, beaten, _ = await tell(first, "heartbeat")
        assert not error and len(beaten["locks"]) == 1, beaten
        error, bad, _ = await tell(first, "acquire_lock", file_path="/etc/passwd", intention="no")
        assert error and bad["error"] == "invalid_path", bad
        error, ports, text = await tell(first, "allocate_ports")
        assert not error and ports["allocation"]["db_port"] >= 10000 and "export DB_PORT=" in text, (ports, text)
        error, again, _ = await tell(first, "allocate_ports")
        assert again["allocation"]["db_port"] == ports["allocation"]["db_port"], (ports, again)
        error, paused, _ = await tell(first, "acquire_lock", file_path="feature:F-1:pause", intention="Escalation")
        assert not error, paused
        error, stopped, text = await tell(second, "feature_check", feature_id="F-1")
        assert error and stopped["error"] == "paused" and "Escalation" in text, (stopped, text)
        error, stopped, _ = await tell(second, "acquire_lock", file_path="x", feature_id="F-1", intention="Work")
        assert error and stopped["error"] == "paused", stopped
        error, _, _ = await tell(first, "release_lock", file_path="feature:F-1:pause")
        assert not error
        error, checked, text = await tell(second, "feature_check", feature_id="F-1", finalize=True)
        assert not error and not checked["paused"] and "finish" in text, (checked, text)
        error, _, _ = await tell(second, "release_lock", file_path="feature:F-1:pause")
        assert not error
        waiting = asyncio.create_task(
            tell(second, "acquire_lock", file_path="src/auth.rs", intention="Next", wait_seconds=20)
        )
        await asyncio.sleep(0.3)
        error, released, _ = await tell(first, "release_lock", lock_id=lock["lock_id"])
        assert not error and released["action"] == "released", released
        error, granted, _ = await waiting
        assert not error and granted["fencing_token"] > lock["fencing_token"], granted
    # Both ended: what the second held was released with its input.
    async with Client(stdio(), mode=mode) as third:
        error, listed, text = await tell(third, "list_locks")
        assert not error and listed["total"] == 0, (listed, text)
        error, history, _ = await tell(third, "lock_history", limit=3)
        assert history["events"][0]["action"] == "released", history


async def two_agents_over_http(mode):
    async with Client(http(), mode=mode) as client:
        await check_tools(client)
        error, lock, text = await tell(client, "acquire_lock", file_path="src/http.rs", intention="One")
        assert not error, (lock, text)
        session = lock["session_id"]
        assert session in text, text
        error, refused, _ = await tell(client, "acquire_lock", file_path="src/http.rs", intention="Two")
        assert error and refused["error"] == "busy", refused
        error, again, _ = await tell(
            client, "acquire_lock", file_path="src/http.rs", intention="One", session_id=session
        )
        assert not error and again["action"] == "refreshed", again
        error, refused, _ = await tell(client, "release_lock", file_path="src/http.rs")
        assert error and refused["error"] == "not_owner", refused
        error, released, _ = await tell(client, "release_lock", file_path="src/http.rs", session_id=session)
        assert not error, released


async def main():
    for mode in ["auto", "legacy"]:
        await two_agents_over_stdio(mode)
        await two_agents_over_http(mode)
    print("all well")


asyncio.run(asyncio.wait_for(main(), 120))
