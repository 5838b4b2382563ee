// `helm test`: makes a key at the control plane, asks the verifier in this pod about it, disables and deletes it. Leaves
// its API, empty: one that was deleted cannot be made again for some seconds.
import { readFileSync } from 'node:fs';

const { CONTROL_PLANE_URL, VERIFIER_URL, API_ID: apiId, ROOT_KEY_FILE } = process.env;
const [rootKey] = readFileSync(ROOT_KEY_FILE, 'utf8').split(/\r?\n/);
const WAIT_MS = 40_000;

// That of an earlier test is as good.
await manage('apis.createApi', { name: 'helm test', apiId }, [409]);
const { keyId, key } = await manage('keys.createKey', { apiId, name: 'helm test' });
try {
  await expectVerdict(key, 'VALID');
  const { propagation } = await manage('keys.updateKey', { keyId, enabled: false });
  if (propagation.state !== 'complete') throw new Error(`the disable is ${propagation.state}`);
  await expectVerdict(key, 'DISABLED');
} finally {
  await manage('keys.deleteKey', { keyId });
}
await expectVerdict(key, 'NOT_FOUND');
console.log('a key was made, verified, disabled, refused and deleted');

async function expectVerdict(key, wanted) {
  const { code } = await ask(`${VERIFIER_URL}/v1/keys.verifyKey`, { key });
  if (code !== wanted) throw new Error(`the verifier says ${code}, not ${wanted}`);
  console.log(`verifyKey: ${code}`);
}

function manage(operation, body, alsoGood) {
  return ask(`${CONTROL_PLANE_URL}/v1/${operation}`, body, alsoGood);
}

async function ask(url, body, alsoGood = []) {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { authorization: `Bearer ${rootKey}`, 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(WAIT_MS),
  });
  const text = await answer.text();
  if (!answer.ok && !alsoGood.includes(answer.status)) throw new Error(`${url}: ${answer.status} ${text}`);
  return JSON.parse(text);
}
