// `cached-keys.ts <count>`: a verifier without HTTP, on a Redis replaced by a few functions, filled with keys
// of one API by its own look-ups; prints the memory per key and the cost of a verification.

import { systemClock } from '../../shared/process/clock.ts';
import type { Directory, Session } from '../../shared/protocol/follower/source.ts';
import { generateKey, hashSecret } from '../../shared/rules/key-format.ts';
import { questionAbout } from '../../verifier/core/question.ts';
import { Verifier } from '../../verifier/core/verifier.ts';
import { metered } from '../../verifier/metering/metering.ts';
import { silent, verifierLimits } from '../verifier-options.ts';

const count = Number(process.argv[2] ?? '1000');
const SAMPLE = 1000;
const VERIFICATIONS = 300_000;
const LEASE_MS = 3_600_000;
const nothing = () => undefined;

let sequence = 0;
const session: Session = {
  findsKeys: false,
  subscribe: async () => undefined,
  register: async (_member, nonce) => ({
    nonce,
    sequence: 0,
    hash: '',
    leaseMs: LEASE_MS,
    apiDeleted: false,
    identities: 0,
    creations: '0-',
  }),
  sync: async ({ nonce, keyId }) => ({
    nonce,
    status: 'OK',
    sequence: 0,
    hash: '',
    leaseMs: LEASE_MS,
    apiDeleted: false,
    creations: '0-',
    entries: [],
    record: keyId === undefined ? [] : [secretHashOf(keyId), '0', '1', '', '', '', '', ''],
  }),
  leave: async () => undefined,
  onEnd: nothing,
  end: nothing,
};
const directory: Directory = {
  silentMs: 0,
  open: async () => session,
  lookUp: async (secretHash) => {
    const keyId = `key_${String(sequence++).padStart(20, '0')}`;
    found.set(keyId, secretHash);
    return { apiId: 'bench', keyId };
  },
};
const found = new Map<string, string>();
function secretHashOf(keyId: string): string {
  const secretHash = found.get(keyId) ?? '';
  found.delete(keyId);
  return secretHash;
}

const verifier = new Verifier({
  ...metered({ exchanges: { awaitsReplicas: false, exchange: async () => [] }, sliceMs: 0 }),
  directory,
  clock: systemClock,
  newNonce: () => 'n',
  limits: { ...verifierLimits, syncPeriodMs: 60_000, cacheKeysMax: count },
  apiIds: ['bench'],
  foreignKeys: false,
  events: silent,
});
verifier.start();
await verifier.followers[0]?.whenLive();

globalThis.gc?.();
const before = process.memoryUsage();
const kept: string[] = [];
const every = Math.max(1, Math.floor(count / SAMPLE));
for (let i = 0; i < count; i++) {
  const key = generateKey(16);
  if (i % every === 0) kept.push(key);
  await verifier.lookUp(questionAbout(key));
}
globalThis.gc?.();
const after = process.memoryUsage();

const rounds: number[] = [];
for (let round = 0; round < 7; round++) {
  const startedAt = performance.now();
  for (let i = 0; i < VERIFICATIONS; i++) {
    const key = kept[i % kept.length] ?? '';
    if (verifier.decide(questionAbout(key))?.code !== 'VALID') throw new Error('not in memory');
  }
  rounds.push(((performance.now() - startedAt) * 1e6) / VERIFICATIONS);
}
const startedAt = performance.now();
for (let i = 0; i < VERIFICATIONS; i++) hashSecret(kept[i % kept.length] ?? '');
const hashNs = ((performance.now() - startedAt) * 1e6) / VERIFICATIONS;
console.log(
  JSON.stringify({
    verifyNs: rounds.toSorted((a, b) => a - b)[3],
    hashNs,
    heapBytes: (after.heapUsed - before.heapUsed) / count,
    rssBytes: (after.rss - before.rss) / count,
  }),
);
process.exit(0);
