// The sample API: says who called, as nginx tells it after the verifier said yes.
import { createServer } from 'node:http';

const server = createServer((request, response) => {
  const { 'x-key-id': keyId, 'x-key-external-id': externalId } = request.headers;
  response.setHeader('content-type', 'application/json');
  response.end(`${JSON.stringify({ hello: externalId || keyId, path: request.url })}\n`);
});
server.listen(8000);
process.once('SIGTERM', () => server.close());
