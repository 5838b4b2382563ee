// A minimal proxy on node:http and undici, which verifies nothing. `minimal-proxy.ts <port> <upstream>
// [tuned]`; `tuned` sets the node:http option that makes requests without a body cheaper, as Keyfence does.
import { createServer } from 'node:http';
import { Pool } from 'undici';

const [port = '0', upstream = '', tuned] = process.argv.slice(2);
const pool = new Pool(upstream, { connections: 1000 });

const server = createServer({ optimizeEmptyRequests: tuned === 'tuned' }, (request, response) => {
  const { method = 'GET', url: path = '/', headers } = request;
  const { connection, 'keep-alive': _, 'transfer-encoding': coding, ...kept } = headers;
  const hasBody = coding !== undefined || headers['content-length'] !== undefined;
  pool.request({ method, path, headers: kept, body: hasBody ? request : null }).then(
    ({ statusCode, headers: { connection, 'keep-alive': _, 'transfer-encoding': __, ...rest }, body }) => {
      response.writeHead(statusCode, rest);
      body.on('error', () => response.destroy()).pipe(response);
    },
    () => response.writeHead(502).end(),
  );
});
server.keepAliveTimeout = 90_000;
server.listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
