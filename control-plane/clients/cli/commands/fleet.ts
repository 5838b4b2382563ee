import type { Command } from 'commander';
import { systemClock } from '#shared/process/clock.ts';
import type { FollowedApi, VerifierStatus } from '#shared/protocol/records/verifier-status.ts';
import { SHARED_LOG } from '#shared/redis/redis-keys.ts';
import { commandAt } from '../from-operations.ts';
import { collect } from '../pages.ts';
import type { Session } from '../session.ts';
import { age, count, table } from '../terminal/output.ts';

/** Adds `keyfence fleet`. */
export function fleetCommand(program: Command, session: Session): void {
  const help = 'show the verifiers that reported recently, and for which APIs each one is behind';
  commandAt(program, 'fleet', help, ['fleet']).action(async () => {
    const client = await session.controlPlane();
    const limit = Number.POSITIVE_INFINITY;
    const { items } = await collect<VerifierStatus>(client, 'fleet.listVerifiers', {}, 'verifiers', limit);
    session.print({ verifiers: items }, () => [verifierTable(items), ...trouble(items)].join('\n\n'));
  });
}

function verifierTable(verifiers: readonly VerifierStatus[]): string {
  const nowMs = systemClock.wallMs();
  return table(verifiers, {
    verifier: ({ id }) => id,
    host: ({ host }) => host,
    version: ({ version }) => version,
    region: ({ region }) => region,
    'to Redis': ({ roundTripMs }) => (roundTripMs ? `${roundTripMs} ms` : undefined),
    protocol: ({ protocol = 1 }) => protocol,
    up: ({ startedAt }) => age(nowMs - startedAt),
    reported: ({ reportedAt }) => age(nowMs - reportedAt),
    verdicts: ({ verdicts: { memory, redis } }) => count(memory + redis),
    hits: ({ verdicts: { memory, redis } }) =>
      memory + redis > 0 ? `${((100 * memory) / (memory + redis)).toFixed(1)} %` : undefined,
    keys: ({ keysInMemory }) => count(keysInMemory),
    APIs: ({ apis, apisNotShown }) => count(apis.length + apisNotShown),
    lag: (by) => Math.max(0, ...allOf(by).map(({ lag }) => lag)),
  });
}

/** Everything that a verifier follows; the shared log appears as another API. */
const allOf = ({ apis, sharedLog }: VerifierStatus): readonly FollowedApi[] =>
  sharedLog ? [...apis, { apiId: SHARED_LOG, ...sharedLog }] : apis;

/** Tables of the APIs for which a verifier has no lease, or is behind. */
function trouble(verifiers: readonly VerifierStatus[]): string[] {
  const apiIds = verifiers
    .flatMap((by) => allOf(by).map((each) => ({ id: by.id, ...each })))
    .filter(({ state, lag }) => state !== 'live' || lag > 0);
  if (apiIds.length === 0) return [];
  return [
    table(apiIds, {
      verifier: ({ id }) => id,
      apiId: ({ apiId }) => apiId,
      state: ({ state }) => state,
      position: ({ position }) => position,
      lag: ({ lag }) => lag,
      lease: ({ leaseRemainingMs }) => `${count(leaseRemainingMs)} ms`,
      member: ({ member }) => member || undefined,
    }),
  ];
}
