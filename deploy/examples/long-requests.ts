// WebSockets and server-sent events that end when their key is no longer good, on node:http and `ws`.
import { createServer as createHttpServer } from 'node:http';
import { endWithKey, keyfence } from 'keyfence/http';
import type { KeyVerifier } from 'keyfence/verifier';
import { WebSocketServer } from 'ws';

export async function createServer(verifier: KeyVerifier) {
  const guard = keyfence({ verifier, apiId: 'shop' });
  const server = createHttpServer((request, response) => {
    guard(request, response, () => {
      response.writeHead(200, { 'Content-Type': 'text/event-stream' });
      response.write('data: hello\n\n');
      endWithKey(request, response);
    });
  });
  const sockets = new WebSocketServer({ noServer: true });
  server.on('upgrade', (request, socket, head) => {
    guard.upgrade(request, socket, (apiKey) => {
      sockets.handleUpgrade(request, socket, head, (webSocket) => {
        endWithKey(request, webSocket);
        webSocket.send(`hello ${apiKey.keyId}`);
      });
    });
  });
  return server;
}
