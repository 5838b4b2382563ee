import { once } from 'node:events';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createTestVerifier } from '../../../verifier/library/test-verifier.ts';
import { mcpServer } from '../../harness/mcp-server.ts';

const METADATA = 'https://mcp.example.com/.well-known/oauth-protected-resource';
const verifier = createTestVerifier({
  reader: { keyId: 'key_1', permissions: ['tools.orders.list'] },
  bad: 'disabled',
});
let server: Server;
let url: URL;
beforeAll(async () => {
  server = await mcpServer(verifier, METADATA);
  await once(server.listen(0), 'listening');
  url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`);
});
afterAll(() => server.close().closeAllConnections());

async function connect(key: string) {
  const client = new Client({ name: 'test', version: '1.0.0' });
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit }) as never);
  return client;
}
const post = (body: unknown, key?: string) =>
  fetch(url, {
    method: 'POST',
    headers: {
      ...{ 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
      ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
    },
    body: JSON.stringify(body),
  });
const call = (name: unknown) => ({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name } });

test('a key calls the tools that it has permissions for', async () => {
  const client = await connect('reader');
  expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(['orders.list', 'orders.delete']);
  const { content } = await client.callTool({ name: 'orders.list' });
  expect(content).toEqual([{ type: 'text', text: 'orders.list for key_1' }]);
  await expect(client.callTool({ name: 'orders.delete' })).rejects.toThrow('403');
  await client.close();
});

test('no call in a list of messages goes unseen', async () => {
  const allowed = call('orders.list');
  expect((await post([allowed, call('orders.delete')], 'reader')).status).toBe(403);
  expect((await post([allowed, { ...call('orders.delete'), method: 'ping' }], 'reader')).status).toBe(200);
});

test('a call without a name that can be permitted fails', async () => {
  for (const name of [undefined, 'orders delete', {}, ''])
    expect((await post(call(name), 'reader')).status, String(name)).toBeGreaterThanOrEqual(400);
});

test('no call passes whose body the guard did not see, whatever its content type', async () => {
  const sent = (type: string | undefined, body: string) =>
    fetch(url, {
      method: 'POST',
      headers: {
        ...{ accept: 'application/json, text/event-stream', authorization: 'Bearer reader' },
        ...(type === undefined ? {} : { 'content-type': type }),
      },
      body,
    });
  const types = ['application/json', 'APPLICATION/JSON;charset=UTF-8', 'text/plain, application/json'];
  types.push('application/vnd.api+json', 'application/json-rpc; application/json', 'text/plain', 'image/png');
  types.push('multipart/form-data; boundary=application/json', 'application/json;charset=utf-16', 'a/b');
  for (const type of [undefined, ...types])
    for (const message of [call('orders.delete'), [call('orders.delete')]]) {
      const answer = await sent(type, JSON.stringify(message));
      expect(await answer.text(), type).not.toContain('orders.delete for');
      expect(answer.status, type).toBeGreaterThanOrEqual(400);
    }
  for (const message of [null, 1, 'text', [], [null], {}, { jsonrpc: '2.0' }, [[call('orders.delete')]]])
    expect((await post(message, 'reader')).status, JSON.stringify(message)).toBeGreaterThanOrEqual(400);
});

test('a 401 names the metadata of the resource', async () => {
  for (const key of [undefined, 'bad', 'unknown']) {
    const { status, headers } = await post(call('orders.list'), key);
    expect(status).toBe(401);
    expect(headers.get('www-authenticate')).toMatch(`resource_metadata="${METADATA}"`);
  }
  await expect(connect('bad')).rejects.toThrow();
});
