import { Type } from 'typebox';
import { Value } from 'typebox/value';
import type { VerifierStatus } from '#shared/protocol/records/verifier-status.ts';
import type { RedisNodes } from '#shared/redis/redis.ts';
import { verifierIds, verifierStatus } from '#shared/redis/redis-keys.ts';
import { perVerdict } from '#shared/rules/verdict-codes.ts';
import { List, Sequence, Time } from '../../core/schema/primitives.ts';

const following = {
  member: Type.String({
    description: 'Its name in `propagation.laggards`, when a change waits for it.',
  }),
  state: Type.Union([Type.Literal('live'), Type.Literal('lapsed'), Type.Literal('joining')], {
    description:
      'live: answers from memory. lapsed: its lease ran out. joining: not in sync yet, or no longer.',
  }),
  position: Sequence,
  lag: Type.Integer({
    minimum: 0,
    description: 'Number of changes that it knows of but has not applied yet.',
  }),
  leaseRemainingMs: Type.Integer({
    minimum: 0,
    description: 'Remaining time for which it may answer from memory without hearing from Redis, ms.',
  }),
  tokensWithheldAt: Type.Optional(
    Time('When it issued no tokens last because a control plane of an older release made a change'),
  ),
};
const FollowedApi = Type.Object({ apiId: Type.String(), ...following });

/** A verifier's report about itself; `VerifierStatus` is its type. */
export const Verifier = Type.Object({
  id: Type.String({
    pattern: '^verifier_[0-9A-Za-z]{20}$',
    description: 'The id of the process; ids sort by start.',
  }),
  host: Type.String({ maxLength: 256 }),
  version: Type.String({ maxLength: 64 }),
  protocol: Type.Integer({
    minimum: 1,
    description:
      'The protocol that it speaks. Keys that need a later protocol than some verifier of their API speaks are refused with VERIFIERS_TOO_OLD.',
  }),
  startedAt: Time('When it started'),
  reportedAt: Time('Time of this report'),
  verdicts: Type.Object(
    { memory: Type.Integer({ minimum: 0 }), redis: Type.Integer({ minimum: 0 }) },
    { description: 'Verdicts since its start; the hit rate is memory ÷ both.' },
  ),
  codes: Type.Optional(
    Type.Object(
      perVerdict(() => Type.Optional(Type.Integer({ minimum: 0 }))),
      {
        description: 'The same verdicts by code. A verifier omits codes that its release does not know.',
      },
    ),
  ),
  keysInMemory: Type.Integer({ minimum: 0 }),
  settings: Type.Optional(
    Type.Object(
      {
        foreignKeys: Type.Boolean(),
        foreignDigests: Type.Optional(List(Type.String())),
        syncPeriodMs: Type.Integer({ minimum: 0 }),
      },
      { description: 'FOREIGN_KEYS, FOREIGN_DIGESTS and SYNC_PERIOD_MS, which must fit keys and LEASE_MS.' },
    ),
  ),
  clockOffMs: Type.Optional(
    Type.Integer({
      description: 'Milliseconds by which its clock is ahead of that of Redis; 0 = not known yet.',
    }),
  ),
  region: Type.Optional(Type.String({ maxLength: 32, description: 'Its REGION; absent if it has none.' })),
  roundTripMs: Type.Optional(
    Type.Number({
      minimum: 0,
      description: 'Duration of its report before, ms: about a round trip to Redis; 0 = not known yet.',
    }),
  ),
  certificateEnds: Type.Optional(Time('When its first certificate ends')),
  usage: Type.Optional(
    Type.Object(
      {
        untilMs: Time('All verdicts before this are reported'),
        lostMs: Type.Optional(Time('When it last lost counts of verdicts')),
      },
      { description: 'Time until which the usage of keys is known; absent if the verifier counts none.' },
    ),
  ),
  apis: List(FollowedApi, { maxItems: 100, description: 'APIs with problems come first.' }),
  apisNotShown: Type.Integer({ minimum: 0, description: 'Number of followed APIs that are not shown.' }),
  sharedLog: Type.Optional(
    Type.Object(following, {
      description: 'The same for roles and identities; absent if it has met no key that needs them.',
    }),
  ),
});

/** Reports of verifiers about themselves. A malformed report is ignored. */
export class FleetView {
  readonly #nodes: RedisNodes;

  constructor(nodes: RedisNodes) {
    this.#nodes = nodes;
  }

  /**
   * The verifiers that reported lately, in order of their start. A page may be short, because ids whose
   * report expired count towards `limit`.
   * @param after the id after which the page begins; '' = from the start
   * @returns `next`: the id after which the next page begins; undefined on the last page
   */
  async list(after: string, limit: number): Promise<{ verifiers: VerifierStatus[]; next?: string }> {
    const from = after === '' ? '-' : `(${after}`;
    const ids = await this.#nodes.run(verifierIds, (redis) =>
      redis.zrangebylex(verifierIds, from, '+', 'LIMIT', 0, limit + 1),
    );
    const page = ids.slice(0, limit);
    if (page.length === 0) return { verifiers: [] };
    const reports = await this.#nodes.run(verifierIds, (redis) => redis.mget(page.map(verifierStatus)));
    const verifiers = reports.map(parse).filter((status) => status !== undefined);
    const next = ids.length > limit ? page.at(-1) : undefined;
    return { verifiers, ...(next === undefined ? {} : { next }) };
  }
}

function parse(report: string | null): VerifierStatus | undefined {
  try {
    const status: unknown = JSON.parse(report ?? '');
    return Value.Check(Verifier, status) ? status : undefined;
  } catch {
    return undefined; // expired, or damaged
  }
}
