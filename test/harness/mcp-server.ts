import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { stripTypeScriptTypes } from 'node:module';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import express, { type Request } from 'express';
import { keyfence } from '../../verifier/library/guards/express.ts';
import type { KeyVerifier } from '../../verifier/library/key-verifier.ts';

/** The function of the page. */
async function toolPermissions(): Promise<(request: Request) => { and: string[] } | undefined> {
  const page = readFileSync(new URL('../../verifier/library/mcp.md', import.meta.url), 'utf8');
  const [, code = ''] = /```ts\n([^`]*?export function toolPermissions[\s\S]*?)\n```/.exec(page) ?? [];
  const module = `data:text/javascript,${encodeURIComponent(stripTypeScriptTypes(code))}`;
  return (await import(/* @vite-ignore */ module)).toolPermissions;
}

/** An MCP server whose tools need permissions, as the page says. */
export async function mcpServer(verifier: KeyVerifier, resourceMetadata: string): Promise<Server> {
  const app = express();
  const rules = { verifier, apiId: 'shop', resourceMetadata } as const;
  const tools = keyfence({ ...rules, permissions: await toolPermissions() });
  app.post('/mcp', keyfence(rules), express.json(), tools, async (request, response) => {
    const transport = new StreamableHTTPServerTransport();
    response.on('close', () => void transport.close());
    await toolsFor(request.apiKey.keyId).connect(transport as never);
    await transport.handleRequest(request, response, request.body);
  });
  app.use((_request, response) => void response.status(405).end());
  return createServer(app);
}

function toolsFor(keyId: string) {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  for (const name of ['orders.list', 'orders.delete'])
    server.registerTool(name, {}, async () => ({
      content: [{ type: 'text', text: `${name} for ${keyId}` }],
    }));
  return server;
}
