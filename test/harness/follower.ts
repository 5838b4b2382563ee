import { systemClock } from '../../shared/process/clock.ts';
import type { NewCompanion } from '../../shared/protocol/follower/companion.ts';
import { Follower } from '../../shared/protocol/follower/follower.ts';
import { KeyCache } from '../../shared/protocol/follower/key-cache.ts';
import type { Session, SyncReply, SyncRequest } from '../../shared/protocol/follower/source.ts';
import { withoutCredits } from './no-credits.ts';

export const LEASE_MS = 60_000;
const nothing = () => undefined;

/** A follower at the creation `1-a`, and what it asks a Redis that answers, and publishes, when and what the test says. */
export async function followerWith(
  dropped: (reason: string) => void = nothing,
  clock = systemClock,
  companion: NewCompanion = withoutCredits,
  registering: (member: string) => void = nothing,
) {
  let recall: (pool: string) => void = nothing;
  let disconnect = nothing;
  let publish: (message: string) => void = nothing;
  const asked: { request: SyncRequest; answer: (reply: Partial<SyncReply>) => void }[] = [];
  const session: Session = {
    findsKeys: false,
    subscribe: async (onMessage, onRecall) => {
      publish = onMessage;
      recall = onRecall;
    },
    register: async (member, nonce) => {
      registering(member);
      const start = { sequence: 0, hash: '', leaseMs: LEASE_MS, apiDeleted: false };
      return { nonce, ...start, identities: 0, creations: '1-a' };
    },
    sync: (request) =>
      new Promise((resolve) => {
        const { nonce } = request;
        const calm = { nonce, sequence: 0, hash: '', leaseMs: LEASE_MS, apiDeleted: false, entries: [] };
        asked.push({
          request,
          answer: (reply) => resolve({ ...calm, status: 'OK', creations: '', record: [], ...reply }),
        });
      }),
    leave: async () => undefined,
    onEnd: (listener) => {
      disconnect = listener as typeof nothing;
    },
    end: nothing,
  };
  let turns = 0;
  const following = new Follower({
    ...{
      apiId: 'api',
      directory: { open: async () => session },
      cache: new KeyCache(10),
      clock,
    },
    ...{ newNonce: () => String(turns++), random: () => 0.5 },
    limits: { syncPeriodMs: LEASE_MS, syncDeadlineMs: LEASE_MS },
    companion,
    events: {
      ...{
        live: nothing,
        dropped,
        disconnected: nothing,
        resumed: nothing,
        gap: nothing,
        applied: nothing,
      },
    },
  });
  void following.run();
  await following.whenLive();
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  return {
    following,
    asked,
    settled,
    publish: (message: string) => publish(message),
    recall: (pool: string) => recall(pool),
    disconnect: () => disconnect(),
  };
}
