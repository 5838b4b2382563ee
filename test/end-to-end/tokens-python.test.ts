import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { TOKEN_LIBRARIES } from '../../bench/clients/programs.ts';
import { Fleet } from '../harness/fleet.ts';
import { lacking } from '../harness/programs.ts';

const isMissing =
  spawnSync('python3', ['-c', 'import jwt, cryptography'], { env: TOKEN_LIBRARIES, stdio: 'ignore' })
    .status !== 0;

const CHECK = `
import json, sys, jwt
address, token, audience = sys.argv[1:]
key = jwt.PyJWKClient(address + '/.well-known/jwks.json').get_signing_key_from_jwt(token)
print(json.dumps(jwt.decode(token, key, algorithms=['EdDSA'], audience=audience, issuer='keyfence')))
`;

const python = async (...args: string[]) =>
  (await promisify(execFile)('python3', ['-c', CHECK, ...args], { env: TOKEN_LIBRARIES })).stdout;

test.skipIf(isMissing)(`PyJWT verifies a token${lacking(isMissing ? ['python3 pyjwt'] : [])}`, async () => {
  const fleet = await Fleet.start({
    env: { TOKEN_KEY: 'a secret of tokens, long enough for all', LEASE_MS: '10000' },
  });
  onTestFinished(() => fleet.stop());
  const { key, keyId } = await fleet.ok('keys.createKey', { apiId: 'shop', permissions: ['files.read'] });
  await fleet.ok('apis.updateApi', { apiId: 'shop', tokens: true, tokenLeewayMs: 0 });
  const address = fleet.verifiers[0]?.address ?? '';
  const issued = await fleet.decided(() => fleet.post(`${address}/v1/keys.issueToken`, { key }));
  const check = () => python(address, issued.body.token, 'shop');
  expect(JSON.parse(await check())).toMatchObject({ sub: keyId, permissions: ['files.read'] });
  await expect(python(address, issued.body.token, 'files')).rejects.toThrow('Audience');
  const { propagation } = await fleet.ok('keys.updateKey', { keyId, enabled: false });
  expect(propagation.state).toBe('complete');
  await expect(check()).rejects.toThrow('expired');
});
