// The sample API: answers whoever sends a good key. No decision (503, or no verifier) is never a yes.
import { request as ask, createServer } from 'node:http';

// The verifier in this pod, or that of this node.
const verifier = process.env.VERIFIER_SOCKET
  ? { socketPath: process.env.VERIFIER_SOCKET }
  : { host: '127.0.0.1', port: 3001 };
const TIMEOUT_MS = 500;

const server = createServer(async (request, response) => {
  const [, key] = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '') ?? [];
  const verdict = key ? await verdictOn(key) : { valid: false };
  const status = verdict === undefined ? 503 : verdict.valid ? 200 : 401;
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(status === 200 ? { hello: verdict.keyId } : { status })}\n`);
});
server.listen(Number(process.env.PORT ?? 8080));
process.once('SIGTERM', () => server.close());

/** What the verifier says; undefined when it cannot say. */
function verdictOn(key) {
  return new Promise((resolve) => {
    const none = () => resolve(undefined);
    const question = ask({
      ...verifier,
      method: 'POST',
      path: '/v1/keys.verifyKey',
      headers: { 'content-type': 'application/json' },
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    question.on('error', none);
    question.on('response', async (answer) => {
      const text = await answer.setEncoding('utf8').toArray().catch(none);
      resolve(answer.statusCode === 200 && text ? JSON.parse(text.join('')) : undefined);
    });
    question.end(JSON.stringify({ key, apiId: 'sample' }));
  });
}
