// better-auth's sessions with its cookie cache: `better-auth-sessions.mjs <port> <cache seconds>`. POST /create signs
// somebody up, POST /revoke ends that session, GET /check answers 200 or 401. All others are its own.
import { createServer } from 'node:http';
import { betterAuth } from 'better-auth';
import { memoryAdapter } from 'better-auth/adapters/memory';

const [port = '0', maxAge = '300'] = process.argv.slice(2);
const auth = betterAuth({
  baseURL: `http://127.0.0.1:${port}`,
  secret: 'Jq3uVd0mZ7rXw1tYb8nKc5pLh2gSf9aE',
  database: memoryAdapter({ user: [], session: [], account: [], verification: [] }),
  emailAndPassword: { enabled: true },
  rateLimit: { enabled: false },
  session: { cookieCache: { enabled: true, maxAge: Number(maxAge) } },
});
let people = 0;

async function answer({ method, url, headers }, text) {
  if (url === '/create') {
    const body = { name: 'bench', email: `bench-${people++}@example.com`, password: 'not-a-secret-1' };
    const signedUp = await auth.api.signUpEmail({ body, asResponse: true });
    const cookies = signedUp.headers.getSetCookie().map((cookie) => cookie.split(';')[0]);
    return [200, { cookie: cookies.join('; ') }];
  }
  const asked = new Headers({ cookie: method === 'POST' ? JSON.parse(text).cookie : (headers.cookie ?? '') });
  if (url === '/revoke') return [200, await auth.api.revokeSessions({ headers: asked })];
  const session = await auth.api.getSession({ headers: asked });
  return [session ? 200 : 401, { valid: session !== null }];
}

createServer((request, response) => {
  let text = '';
  request.on('data', (chunk) => {
    text += chunk;
  });
  request.on('end', async () => {
    const [status, body] = await answer(request, text).catch((error) => [500, { error: String(error) }]);
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(body));
  });
}).listen(Number(port), '127.0.0.1', () => console.log(JSON.stringify({ ready: true })));
