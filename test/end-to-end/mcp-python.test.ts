import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { TOKEN_LIBRARIES } from '../../bench/clients/programs.ts';
import { createTestVerifier } from '../../verifier/library/test-verifier.ts';
import { mcpServer } from '../harness/mcp-server.ts';
import { lacking } from '../harness/programs.ts';

const isMissing =
  spawnSync('python3', ['-c', 'import mcp.client.streamable_http'], { env: TOKEN_LIBRARIES, stdio: 'ignore' })
    .status !== 0;

const PROGRAM = `
import asyncio, json, sys
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
url, key = sys.argv[1:]
async def main():
    http = create_mcp_http_client(headers={"Authorization": "Bearer " + key})
    async with Client(streamable_http_client(url, http_client=http)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        called = await client.call_tool("orders.list", {})
        try:
            await client.call_tool("orders.delete", {})
            refused = None
        except BaseException as error:
            refused = str(error)
        print(json.dumps([names, called.content[0].text, refused]))
asyncio.run(main())
`;

test.skipIf(isMissing)(
  `the Python SDK calls what its key permits${lacking(isMissing ? ['python3 mcp'] : [])}`,
  async () => {
    const verifier = createTestVerifier({ reader: { keyId: 'key_1', permissions: ['tools.orders.list'] } });
    const server = await mcpServer(verifier, 'https://mcp.example.com/metadata');
    onTestFinished(() => void server.close().closeAllConnections());
    await once(server.listen(0), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
    const python = (key: string) =>
      promisify(execFile)('python3', ['-c', PROGRAM, url, key], { env: TOKEN_LIBRARIES });
    const [names, called, refused] = JSON.parse((await python('reader')).stdout);
    expect(names).toEqual(['orders.list', 'orders.delete']);
    expect(called).toBe('orders.list for key_1');
    expect(refused).not.toBeNull();
    await expect(python('unknown')).rejects.toThrow();
  },
);
