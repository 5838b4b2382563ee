import { randomUUID } from 'node:crypto';
import { createServer as createDoor } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Apis } from '../../control-plane/core/apis/apis.ts';
import { apiOperations } from '../../control-plane/core/apis/operations.ts';
import { BootstrapKeys } from '../../control-plane/core/callers/bootstrap-keys.ts';
import { RootKeys } from '../../control-plane/core/callers/root-keys.ts';
import { Sessions } from '../../control-plane/core/callers/sessions.ts';
import { Keys } from '../../control-plane/core/keys/keys.ts';
import { keyOperations, keysOfApiOperations } from '../../control-plane/core/keys/operations.ts';
import { KeyView } from '../../control-plane/core/records/key-view.ts';
import { Connections } from '../../control-plane/core/serve/connections.ts';
import { httpLimits, httpSettings } from '../../control-plane/core/serve/limits.ts';
import { LoadShedding } from '../../control-plane/core/serve/load-shedding.ts';
import { Once } from '../../control-plane/core/serve/once.ts';
import { addPipeline, serveOperations } from '../../control-plane/core/serve/pipeline.ts';
import { RateLimits } from '../../control-plane/core/serve/rate-limits.ts';
import { createServer } from '../../control-plane/core/serve/server.ts';
import { Turns } from '../../control-plane/core/serve/turns.ts';
import { systemClock } from '../../shared/process/clock.ts';
import { loadConfig } from '../../shared/process/load-config.ts';
import { createLogger } from '../../shared/process/log.ts';
import type { Companion } from '../../shared/protocol/follower/companion.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { BATCH_LIMITS, RedisChangeLog } from '../../shared/protocol/log/change-log.ts';
import { DurableWriter } from '../../shared/protocol/log/durable-writer.ts';
import { Fence } from '../../shared/protocol/writer/fence.ts';
import { ChangeWriter } from '../../shared/protocol/writer/writer.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { ApiError } from '../../shared/rules/errors.ts';
import { newRequestId, uniqueTexts } from '../../shared/rules/request-id.ts';
import type { Meter } from '../../verifier/core/ports.ts';
import { readQuestion } from '../../verifier/core/question.ts';
import { verdictBody } from '../../verifier/core/verdict-body.ts';
import { Verifier } from '../../verifier/core/verifier.ts';

/**
 * The core with nothing in its ports: no credits, limits, roles, identities, usage, audit log. A key is created, verified,
 * disabled and refused, over HTTP and a real Redis. core.test.ts runs it where the extras are missing.
 */
const ROOT_KEY = 'core-alone-root-key-0123456789abcdef01234567';
const LEASE_MS = 2000;
const nothing = () => undefined;

const config = {
  ...loadConfig({ ...redisSettings, ...httpSettings }, { REDIS_URL: process.env['REDIS_URL'] }),
  ...{ ...redisLimits, ...httpLimits },
};
const clock = systemClock;
const log = createLogger('control-plane', 'error');
const nodes = new RedisNodes(config, clock, log);

/** The control plane. */
async function startControlPlane() {
  const writer = new DurableWriter(nodes, 0);
  const changes = new RedisChangeLog(nodes, writer, 0, () => clock.wallMs());
  const events = { ended: nothing, killed: nothing, reaped: nothing, rewritten: nothing };
  const fence = new Fence(changes, clock, 0, events);
  const limits = {
    ...{ fenceWaitMs: 30_000, pending: { changesMax: 100, stopsMax: 100 } },
    ...{ replicated: false, batch: BATCH_LIMITS },
  };
  const changeWriter = new ChangeWriter({
    ...{ log: changes, fence, clock, limits, events, durable: async () => true },
    present: (apiId, keyId, letters) => changes.present(apiId, keyId, letters),
  });
  const bootstrapKeys = new BootstrapKeys([ROOT_KEY]);
  const rootKeys = new RootKeys(nodes, writer, bootstrapKeys);
  const keys = new Keys({
    ...{ nodes, writer, log: changes, clock },
    limits: { leaseMs: LEASE_MS, apiAutoCreate: false },
  });
  const apis = new Apis(nodes, writer, clock, LEASE_MS);
  const app = createServer(config, log);
  const connections = new Connections(config, nothing);
  connections.watch(app.server);
  const shedding = new LoadShedding(0, clock);
  const rates = new RateLimits(nodes, clock, { calls: 0, failures: 0 }, nothing);
  const pipeline = {
    ...{ keys, apis, rootKeys, bootstrapKeys, shedding, clock, log, paths: [] },
    audit: { record: async () => undefined, recordAll: async () => undefined },
    sessions: new Sessions(nodes, rootKeys, clock, undefined),
    admission: { connections, rates },
    turns: new Turns({ atOnce: 32, waitingMax: 100 }),
    once: new Once(writer, clock, 60_000, nothing),
    metrics: { requests: { observe: nothing }, rates: { inc: nothing }, shed: { inc: nothing } },
    isStopping: () => false,
  };
  addPipeline(app, pipeline);
  const roles = {
    get: async () => undefined,
    idsOf: async () => [],
    oneOf: async () => '',
    patchOf: async () => ({}),
    withRoleNames: async <Shown>(shown: readonly Shown[]) => [...shown],
    existing: async () => [],
    namesOf: async () => [],
  };
  const needs = {
    ...{ apis, keys, roles, clock, changeWriter, view: new KeyView(nodes) },
    identities: {
      get: async () => undefined,
      withIdentities: async <Shown>(shown: readonly Shown[]) => [...shown],
    },
    usage: { withLastUses: async <Shown>(_apiId: string, shown: readonly Shown[]) => [...shown] },
    debts: { end: async () => undefined },
    notices: { add: async () => 0 },
  };
  const served = [...keyOperations, ...apiOperations, ...keysOfApiOperations].filter(({ name }) =>
    ['keys.createKey', 'keys.updateKey', 'keys.getKey', 'apis.createApi'].includes(name),
  );
  // biome-ignore lint/suspicious/noExplicitAny: the needs of these four are there
  serveOperations<any>(app, served as any, needs, pipeline);
  const address = await app.listen({ host: '127.0.0.1', port: 0 });
  return { address, stop: () => app.close() };
}

/** Nothing lives beside the records. */
const alone = (): Companion => ({
  isHeld: false,
  changed: nothing,
  recall: nothing,
  reconnected: nothing,
  held: () => [],
  bring: async () => undefined,
  close: async () => undefined,
});
/** Nothing is counted: the rules alone decide. */
const meter: Meter = {
  applies: () => false,
  take: (entry, _question, effectivePermissions) => ({ code: 'VALID', entry, effectivePermissions }),
  wait: () => Promise.reject(new Error('nothing waits')),
};

/** A verifier with one door. */
async function startVerifier() {
  const verifier = new Verifier({
    ...{ clock, newNonce: uniqueTexts(), apiIds: [], foreignKeys: false },
    directory: new RedisDirectory(nodes, 0, clock),
    companion: alone,
    meter: () => meter,
    limits: {
      ...{
        syncPeriodMs: 500,
        syncDeadlineMs: 800,
        cacheKeysMax: 1000,
        unknownKeysMax: 1000,
        unknownTtlMs: 1000,
      },
      ...{
        lookupsInFlightMax: 64,
        lookupsQueuedMax: 1000,
        lookupWaitMs: 10_000,
        apisMax: 10,
        apiIdleMs: 600_000,
      },
    },
    events: () => ({
      ...{
        live: nothing,
        dropped: nothing,
        disconnected: nothing,
        resumed: nothing,
        gap: nothing,
        applied: nothing,
      },
    }),
  });
  verifier.start();
  const door = createDoor(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    const question = readQuestion(body, (message) => new ApiError('BAD_REQUEST', message));
    const verdict = verifier.decide(question) ?? (await verifier.lookUp(question));
    response.end(verdictBody(verdict, newRequestId()));
  });
  await new Promise<void>((resolve) => door.listen(0, '127.0.0.1', resolve));
  const { port } = door.address() as AddressInfo;
  return {
    address: `http://127.0.0.1:${port}`,
    async stop() {
      door.close();
      door.closeAllConnections();
      await verifier.stop();
    },
  };
}

const controlPlane = await startControlPlane();
const verifier = await startVerifier();

async function post(url: string, body: object) {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${ROOT_KEY}` };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return (await answer.json()) as Record<string, unknown>;
}
const admin = (operation: string, body: object) => post(`${controlPlane.address}/v1/${operation}`, body);
const verify = async (key: unknown) => (await post(`${verifier.address}/v1/keys.verifyKey`, { key }))['code'];

await admin('apis.createApi', { apiId: 'shop', name: `Shop ${randomUUID()}` });
const { key, keyId } = await admin('keys.createKey', { apiId: 'shop' });
const codes = [await verify(key), await verify(key)];
const { propagation } = await admin('keys.updateKey', { keyId, enabled: false });
codes.push((propagation as { state: string }).state, await verify(key), await verify(`${key}x`));
console.log(codes.join(' '));
await verifier.stop();
await controlPlane.stop();
await nodes.close();
