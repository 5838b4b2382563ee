// A process with many verifiers in it, without HTTP: `followers.ts <count> <apiId>`. Each has a connection of its own.
import { randomBytes } from 'node:crypto';
import { systemClock } from '../shared/clock.ts';
import { loadConfig } from '../shared/config.ts';
import { createLogger } from '../shared/log.ts';
import { RedisNodes, redisSettings } from '../shared/redis.ts';
import { RedisDirectory } from '../verifier/redis-session.ts';
import { Verifier } from '../verifier/verifier.ts';

const [count = '1', apiId = 'bench'] = process.argv.slice(2);
const config = loadConfig(redisSettings, process.env);
const log = createLogger('verifier', 'silent');
const nothing = () => undefined;
const verifiers = Array.from({ length: Number(count) }, () => {
  const nodes = new RedisNodes(config, systemClock, log);
  return new Verifier({
    directory: new RedisDirectory(nodes, 0),
    clock: systemClock,
    random: () => randomBytes(12).toString('base64url'),
    limits: {
      syncPeriodMs: 1000,
      syncDeadlineMs: 800,
      cacheKeysMax: 1000,
      unknownKeysMax: 100,
      unknownTtlMs: 1000,
      lookupsInFlightMax: 64,
      lookupsQueuedMax: 1000,
      lookupWaitMs: 1000,
      apisMax: 10,
      apiIdleMs: 600_000,
    },
    apiIds: [apiId],
    foreignKeys: false,
    events: () => ({
      live: nothing,
      dropped: nothing,
      disconnected: nothing,
      resumed: nothing,
      gap: nothing,
      applied: nothing,
    }),
  });
});
for (const verifier of verifiers) {
  verifier.start();
  await verifier.followers[0]?.whenLive();
}
console.log(JSON.stringify({ live: verifiers.length }));
setInterval(nothing, 60_000);
