// A process with many verifiers without HTTP: `followers.ts <count> <apiId> [at-once]`. Each has its own
// connection. They join one after the other, or all at once. Reports when the last of them has applied a
// change, by the clock that all processes of a machine share.

import { systemClock } from '../../shared/process/clock.ts';
import { loadConfig } from '../../shared/process/load-config.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { uniqueTexts } from '../../shared/rules/request-id.ts';
import { Verifier } from '../../verifier/core/verifier.ts';
import { meteredAt, silent, verifierLimits } from '../verifier-options.ts';

const [count = '1', apiId = 'bench', pace] = process.argv.slice(2);
const config = { ...redisLimits, ...loadConfig(redisSettings, process.env) };
const log = createLogger('verifier', 'silent');
/** Number of verifiers that have applied each change. */
const appliedBy = new Map<number, number>();
const verifiers = Array.from({ length: Number(count) }, () => {
  const nodes = new RedisNodes(config, systemClock, log);
  return new Verifier({
    ...meteredAt(nodes),
    directory: new RedisDirectory(nodes, 0, systemClock),
    clock: systemClock,
    newNonce: uniqueTexts(),
    limits: verifierLimits,
    apiIds: [apiId],
    foreignKeys: false,
    events: () => ({
      ...silent(),
      applied: ({ sequence }) => {
        appliedBy.set(sequence, (appliedBy.get(sequence) ?? 0) + 1);
        if (appliedBy.get(sequence) !== Number(count)) return;
        appliedBy.delete(sequence);
        console.log(JSON.stringify({ appliedByAll: sequence, atNs: String(process.hrtime.bigint()) }));
      },
    }),
  });
});
const join = async (verifier: Verifier) => {
  verifier.start();
  while (!verifier.followers[0]?.live) await verifier.followers[0]?.whenLive().catch(() => undefined);
};
if (pace === 'at-once') await Promise.all(verifiers.map(join));
else for (const verifier of verifiers) await join(verifier);
console.log(JSON.stringify({ live: verifiers.length }));
setInterval(() => undefined, 60_000);
