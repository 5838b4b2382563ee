import { awaitsTokens, Failure, listVerifiers, type Propagation, serverNow } from '../api/client.ts';
import type { Change, Follower } from './fence.tsx';

const POLL_MS = 200;
const NAMES_EVERY = 10;
const LAGGARDS_NAMED_MAX = 100;
const HISTORY_MAX = 60;
/**
 * Assumed difference between the clocks of the control plane and of a proxy, which may have set the Date
 * header.
 */
const SKEW_MS = 500;

/** A written change, and the function that asks how far it has come. */
export interface WrittenChange extends Pick<Change, 'keyId' | 'headline' | 'undo' | 'progress'> {
  readonly propagation: Propagation;
}

/** The changes made since the page was loaded, for the chart: the API keeps no such history. */
export const history: { readonly at: number; readonly tookMs: number; readonly by: 'acks' | 'fence' }[] = [];

/** Yields the state of a change until it is complete. */
export async function* follow(
  apiId: string | undefined,
  send: () => Promise<WrittenChange>,
): AsyncGenerator<Change> {
  const startedAt = performance.now();
  const tookMs = () => Math.round(performance.now() - startedAt);
  let [names, { propagation, closesAt, ...sent }] = await Promise.all([
    namesOf(apiId),
    send().then((change) => {
      // Take the time left from the server's clock, and measure it with our monotonic clock.
      const { completeBy } = change.propagation;
      const fenceMs =
        completeBy === undefined ? Number.POSITIVE_INFINITY : completeBy - serverNow() + SKEW_MS;
      return { ...change, closesAt: performance.now() + fenceMs };
    }),
  ]);
  const appliedTimes = new Map<string, number>();
  const stateOf = (now: Propagation, by: Change['by'], ms: number): Change => {
    const leftMs = by ? 0 : Math.max(0, closesAt - performance.now());
    const followers = followersOf(now, names, appliedTimes, ms);
    return { ...sent, propagation: now, by, tookMs: ms, leftMs, followers };
  };
  const finish = (by: 'acks' | 'fence', ms: number) => {
    history.push({ at: Date.now(), tookMs: ms, by });
    if (history.length > HISTORY_MAX) history.shift();
    return by;
  };

  if (propagation.state === 'complete') {
    const by = propagation.by ?? 'acks';
    yield stateOf(propagation, finish(by, propagation.waitedMs), propagation.waitedMs);
    return;
  }
  // Only the answer to the change itself tells it.
  const { overtakenBy } = propagation;
  const overtaken = overtakenBy === undefined ? {} : { overtakenBy };
  let now = propagation;
  yield stateOf(now, undefined, tookMs());
  for (let round = 0; ; round++) {
    if (round > 0) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    const before = now;
    try {
      now = { ...overtaken, ...(await sent.progress()).propagation };
      if (round % NAMES_EVERY === NAMES_EVERY - 1) names = await namesOf(apiId);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      yield { ...stateOf(now, undefined, tookMs()), failure: error };
      if (error.passes) continue;
      return;
    }
    // The history still holds the change, and every lease from before it has ended: no verifier answers from
    // the earlier state.
    const atEnd = performance.now() >= closesAt ? (now.by ?? 'fence') : undefined;
    // The fence removes a verifier that did not confirm the change, once its lease has ended.
    const isRemoved =
      now.state === 'complete' && now.verifiers < before.verifiers && !!before.laggards?.length;
    if (isRemoved) now = { ...before, durable: now.durable };
    const by = isRemoved ? 'fence' : now.state === 'complete' ? 'acks' : atEnd;
    yield stateOf(now, by && finish(by, tookMs()), tookMs());
    if (by) return;
  }
}

/** Verifiers by the names of their registrations, as in `laggards`. */
type Names = readonly (readonly [member: string, name: string])[];

/**
 * Returns the verifiers in `names` and any other laggard; `appliedTimes` records when each was first seen to
 * have applied the change.
 */
function followersOf(
  now: Propagation,
  names: Names,
  appliedTimes: Map<string, number>,
  ms: number,
): Follower[] {
  const isApplied = now.state === 'complete' || awaitsTokens(now);
  const late = new Set(isApplied ? [] : (now.laggards ?? names.map(([member]) => member)));
  const allNamed = late.size < LAGGARDS_NAMED_MAX;
  const strangers = [...late].filter((member) => !names.some(([name]) => name === member));
  return [...names, ...strangers.map((member) => [member, `registration ${member}`] as const)].map(
    ([member, name]) => {
      if (!late.has(member) && allNamed && !appliedTimes.has(member)) appliedTimes.set(member, ms);
      const appliedMs = appliedTimes.get(member);
      return { member, name, ...(appliedMs === undefined ? {} : { appliedMs }) };
    },
  );
}

/**
 * Returns the verifiers that follow an API, or the shared log if `apiId` is undefined; none if this root key
 * may not see the fleet.
 */
async function namesOf(apiId: string | undefined): Promise<Names> {
  const verifiers = await listVerifiers().catch(() => []);
  return verifiers.flatMap(({ id, host, apis, sharedLog }) => {
    const api = apiId === undefined ? sharedLog : apis.find((each) => each.apiId === apiId);
    return api?.member ? [[api.member, `${host} ${id.slice(-6)}`] as const] : [];
  });
}
