"""Ask `hansard mcp` as an agent does: search for a word, then read around the first hit.

python mcp_client.py WORD [STORE]
"""

import json
import sys

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "hansard", "-s", sys.argv[2] if sys.argv[2:] else ".hansard", "mcp", "--all"],
)


async def ask(client, tool, **arguments):
    print(f"-> {tool} {json.dumps(arguments)}")
    done = await client.call_tool(tool, arguments)
    return json.loads(done.content[0].text)


async def main(word):
    async with Client(stdio_client(SERVER)) as client:
        hits = (await ask(client, "search_sessions", query=word, limit=3))["hits"]
        for hit in hits:
            print(f"<- {hit['cite']}  {hit['snippet']}")
        if not hits:
            print("<- no hits")
            return
        first = hits[0]
        page = await ask(
            client, "read_session", id=first["session"], around=first["seq"] or 1, limit=6
        )
        for entry in page["entries"]:
            for part in entry.get("parts", []):
                print(
                    f"<- {entry['seq']} {entry['role']}, {part['kind']}: {' '.join(part['text'].split())}"
                )
        print(f"<- cite: {page['cite']}")


anyio.run(main, sys.argv[1])
