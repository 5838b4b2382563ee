// A verifier without HTTP that looks up each key of a file once, beside bare GETs, at the replica if there is REDIS_READ_URL:
// `look-ups.ts <keys file>`.
import { readFileSync } from 'node:fs';
import { systemClock } from '../../shared/process/clock.ts';
import { loadConfig } from '../../shared/process/load-config.ts';
import { createLogger } from '../../shared/process/log.ts';
import { RedisNearby } from '../../shared/protocol/follower/nearby.ts';
import { RedisDirectory } from '../../shared/protocol/follower/session.ts';
import { RedisNodes } from '../../shared/redis/redis.ts';
import { redisLimits, redisSettings } from '../../shared/redis/redis-settings.ts';
import { uniqueTexts } from '../../shared/rules/request-id.ts';
import { questionAbout } from '../../verifier/core/question.ts';
import { Verifier } from '../../verifier/core/verifier.ts';
import { engineSettings } from '../../verifier/engine.ts';
import { percentile } from '../harness.ts';
import { meteredAt, silent, verifierLimits } from '../verifier-options.ts';

const keys = readFileSync(process.argv[2] ?? '', 'utf8').split('\n');
const { REDIS_READ_URL } = engineSettings;
const config = { ...redisLimits, ...loadConfig({ ...redisSettings, REDIS_READ_URL }, process.env) };
const log = createLogger('verifier', 'silent');
const nodes = new RedisNodes(config, systemClock, log);
const [replica] = config.REDIS_READ_URL;
const nearby = replica && new RedisNearby(config, systemClock, log);
const verifier = new Verifier({
  ...meteredAt(nodes),
  directory: new RedisDirectory(nodes, 0, systemClock, nearby),
  clock: systemClock,
  newNonce: uniqueTexts(),
  limits: verifierLimits,
  apiIds: ['bench'],
  foreignKeys: false,
  events: silent,
});
verifier.start();
await verifier.followers[0]?.whenLive();
const local = replica ? new RedisNodes({ ...config, REDIS_URL: [replica] }, systemClock, log) : nodes;
const redis = await local.connection('kf:bench');
const gets: number[] = [];
const lookUps: number[] = [];
for (const key of keys) {
  let startedAt = performance.now();
  await redis.get('kf:bench:nothing');
  gets.push(performance.now() - startedAt);
  startedAt = performance.now();
  const verdict = await verifier.lookUp(questionAbout(key));
  lookUps.push(performance.now() - startedAt);
  if (verdict.code !== 'VALID') throw new Error(verdict.code);
}
// Leave out the first tenth, which warms up the just-in-time compiler.
const settled = (all: number[]) => percentile(all.slice(all.length / 10), 0.5);
const { nearby: answeredNearby } = verifier.counts;
console.log(JSON.stringify({ get: settled(gets), lookUp: settled(lookUps), nearby: answeredNearby }));
await verifier.stop(); // otherwise changes would wait for its lease
process.exit(0);
