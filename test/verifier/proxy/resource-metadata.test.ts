import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { Fleet } from '../../harness/fleet.ts';

const METADATA = 'https://mcp.example.com/.well-known/oauth-protected-resource';

test('a 401 names the metadata of the resource', async () => {
  const api = createServer((_request, response) => response.end('ok')).listen(0);
  onTestFinished(() => void api.close().closeAllConnections());
  const upstream = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  const env = { API_IDS: 'shop', UPSTREAM_URL: upstream, PROXY_PORT: '0' };
  const fleet = await Fleet.start({ env: { ...env, RESOURCE_METADATA_URL: METADATA } });
  onTestFinished(() => fleet.stop());
  const [{ address, proxyAddress } = { address: '', proxyAddress: '' }] = fleet.verifiers;
  for (const key of ['', 'Bearer unknown'])
    for (const url of [
      `${proxyAddress}/mcp`,
      `${address}/authz/forward-auth`,
      `${address}/authz/auth-request`,
    ]) {
      const { status, headers } = await fleet.decided(() =>
        fleet.get(url, key === '' ? {} : { authorization: key }),
      );
      expect(status, url).toBe(401);
      const error = key === '' ? '' : ', error="invalid_token"';
      expect(headers['www-authenticate']).toBe(`Bearer realm="api"${error}, resource_metadata="${METADATA}"`);
    }
});
