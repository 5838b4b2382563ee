import type { Command } from 'commander';
import { systemClock } from '#shared/clock.ts';
import type { VerifierStatus } from '#shared/verifier-status.ts';
import { collect } from '../pages.ts';
import type { Session } from '../session.ts';
import { count, table } from '../terminal/output.ts';

/** `keyfence fleet` */
export function fleetCommand(program: Command, session: Session): void {
  program
    .command('fleet')
    .description('the verifiers that reported lately, and the APIs with which they are behind')
    .action(async () => {
      const client = await session.controlPlane();
      const limit = Number.POSITIVE_INFINITY;
      const { items } = await collect<VerifierStatus>(client, 'fleet.listVerifiers', {}, 'verifiers', limit);
      session.print({ verifiers: items }, () => [verifierTable(items), ...trouble(items)].join('\n\n'));
    });
}

function verifierTable(verifiers: readonly VerifierStatus[]): string {
  const nowMs = systemClock.wallMs();
  const rows = verifiers.map(
    ({
      id,
      host,
      version,
      protocol = 1,
      startedAt,
      reportedAt,
      verdicts,
      keysInMemory,
      apis,
      apisNotShown,
    }) => {
      const asked = verdicts.memory + verdicts.redis;
      return [
        id,
        host,
        version,
        protocol,
        age(nowMs - startedAt),
        age(nowMs - reportedAt),
        count(asked),
        asked > 0 ? `${((100 * verdicts.memory) / asked).toFixed(1)} %` : undefined,
        count(keysInMemory),
        count(apis.length + apisNotShown),
        Math.max(0, ...apis.map(({ lag }) => lag)),
      ];
    },
  );
  return table(rows, [
    'verifier',
    'host',
    'version',
    'protocol',
    'up',
    'reported',
    'verdicts',
    'hits',
    'keys',
    'APIs',
    'lag',
  ]);
}

/** Those APIs that a verifier does not answer for from memory, or only by what was before. */
function trouble(verifiers: readonly VerifierStatus[]): string[] {
  const rows = verifiers.flatMap(({ id, apis }) =>
    apis
      .filter(({ state, lag }) => state !== 'live' || lag > 0)
      .map(({ apiId, member, state, position, lag, leaseRemainingMs }) => [
        id,
        apiId,
        state,
        position,
        lag,
        `${count(leaseRemainingMs)} ms`,
        member || undefined,
      ]),
  );
  return rows.length === 0
    ? []
    : [table(rows, ['verifier', 'apiId', 'state', 'position', 'lag', 'lease', 'member'])];
}

/** Milliseconds as people read them, in the largest unit that fits. */
function age(ms: number): string {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172_800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86_400)} d`;
}
